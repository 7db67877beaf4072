// The combine stage of an input alone: a row is what is loaded, held as it is.
#pragma once

#include "../common/rows.h"
#include "chunks.cuh"

typedef InputChunk HeldChunk;

struct RowSource {
  const Input* input;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides)};
  }

  // Rows of codes may be longer than those of the input; a chunk past a row is zero.
  JITNORM_INLINE void load(HeldChunk& h, int index) const {
    const bool is_padding = kInputSize < kHiddenSize && index >= kInputSize / kChunkSize;
    load_chunk(h, input, is_padding ? kChunks : index);
  }

  template <typename Visit>
  JITNORM_INLINE void visit_loaded(Visit visit) const {
    visit(input);
  }

  // The same row in shared memory.
  JITNORM_INLINE RowSource staged(const Input* memory) const { return {memory}; }

  JITNORM_INLINE void store_sum(const HeldChunk&, int) const {}
};
