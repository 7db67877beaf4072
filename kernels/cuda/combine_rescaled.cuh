// The combine stage of an FP8 tensor with a scale: a row is what is loaded times that, held as it is loaded.
#pragma once

#include "../common/rescale.h"
#include "../common/rows.h"
#include "chunks.cuh"

struct HeldChunk {
  InputChunk codes;
  float scale;
};

JITNORM_INLINE float value_of(const HeldChunk& h, int i) { return rescaled(value_of(h.codes, i), h.scale); }
JITNORM_INLINE void forget_unpacked(HeldChunk& h) { forget_unpacked(h.codes); }

struct RowSource {
  const Input* input;
  float scale;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides), input_scale(a)};
  }

  // A chunk past a row is zero, whatever the scale.
  JITNORM_INLINE void load(HeldChunk& h, int index) const {
    const bool is_padding = kInputSize < kHiddenSize && index >= kInputSize / kChunkSize;
    load_chunk(h.codes, input, is_padding ? kChunks : index);
    h.scale = is_padding ? 0.0f : scale;
  }

  JITNORM_INLINE void store_sum(const HeldChunk&, int) const {}
};
