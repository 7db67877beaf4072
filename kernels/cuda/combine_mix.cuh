// The combine stage of hyper-connections (mHC): a row is the sum of kStreams rows, each times a factor of its own.
#pragma once

#include "../common/rows.h"
#include "chunks.cuh"

typedef Chunk<float, 16> HeldChunk;

struct RowSource {
  const Input* input;
  float factors[kStreams];

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    RowSource source{a.input + row_offset(row, a.extents, a.input_strides)};
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) source.factors[s] = a.mix[row * kStreams + s];
    return source;
  }

  JITNORM_INLINE void load(HeldChunk& h, int index) const {
    InputChunk x[kStreams];
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) load_chunk(x[s], input + s * kHiddenSize, index);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      float sum = 0.0f;
      JITNORM_UNROLL
      for (int s = 0; s < kStreams; ++s) sum = fma_rn(factors[s], value_of(x[s], i), sum);
      h.elements[i] = sum;
    }
  }

  JITNORM_INLINE void store_sum(const HeldChunk&, int) const {}
};
