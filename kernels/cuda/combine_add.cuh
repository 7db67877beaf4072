// The combine stage with a residual: a row is the float32 sum, which may also be stored, rounded to the input's type.
#pragma once

#include "../common/rows.h"
#include "chunks.cuh"

typedef Chunk<float, 16> HeldChunk;

struct RowSource {
  const Input* input;
  const Input* residual;
  Input* sum;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides),
            a.residual + row_offset(row, a.extents, a.residual_strides),
            a.residual_out + row_offset(row, a.extents, a.residual_out_strides)};
  }

  JITNORM_INLINE void load(HeldChunk& h, int index) const {
    InputChunk x, r;
    load_chunk(x, input, index);
    load_chunk(r, residual, index);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.elements[i] = add_rn(value_of(x, i), value_of(r, i));
  }

  template <typename Visit>
  JITNORM_INLINE void visit_loaded(Visit visit) const {
    visit(input);
    visit(residual);
  }

  // The same row in shared memory, where the residual lies behind the input.
  JITNORM_INLINE RowSource staged(const Input* memory) const { return {memory, memory + kHiddenSize, sum}; }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const HeldChunk& h, int index) const {
    if constexpr (kStoresSum) store_rounded(sum, index, h.elements);
  }
};
