// The combine stage of SwiGLU: a row is silu(gate) * value of an input with both.
#pragma once

#include "../common/rows.h"
#include "../common/silu.h"
#include "chunks.cuh"

typedef Chunk<float, 16> HeldChunk;

// Gates and values of a chunk's outputs: each in one run, both in one run of two chunks, or scattered.
JITNORM_INLINE void load_gated(InputChunk& gate, InputChunk& value, const Input* row, int index) {
  constexpr bool kIsRun = kGateColumns % kChunkSize == 0 || kGateColumns == kHiddenSize;
  if constexpr (kIsRun) {
    const Input* from = row + index * kChunkSize / kGateColumns * kGateColumns;
    load_chunk(gate, from, index);
    load_chunk(value, from + kGateColumns, index);
  } else if (kChunkSize % kGateColumns == 0 && index < kWholeChunks) {
    InputChunk both[2];
    copy_words(both[0].accesses, row + index * 2 * kChunkSize);
    copy_words(both[1].accesses, row + (index * 2 + 1) * kChunkSize);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const int at = gate_position(i);
      gate.elements[i] = both[at / kChunkSize].elements[at % kChunkSize];
      value.elements[i] = both[(at + kGateColumns) / kChunkSize].elements[(at + kGateColumns) % kChunkSize];
    }
  } else {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const bool is_there = index < kWholeChunks || is_in_row(index, i);
      const Input* from = row + gate_position(index * kChunkSize + i);
      gate.elements[i] = is_there ? from[0] : Input{};
      value.elements[i] = is_there ? from[kGateColumns] : Input{};
    }
  }
}

struct RowSource {
  const Input* input;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides)};
  }

  JITNORM_INLINE void load(HeldChunk& h, int index) const {
    InputChunk gate, value;
    load_gated(gate, value, input, index);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      h.elements[i] = mul_rn(silu(value_of(gate, i)), value_of(value, i));
    }
  }

  JITNORM_INLINE void store_sum(const HeldChunk&, int) const {}
};
