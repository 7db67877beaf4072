// Quantization in square blocks: each is held in the registers of a block of threads from its only load to its store.
// Neighbouring threads have neighbouring chunks.
#pragma once

#include "../common/squares.h"
#include "encode.cuh"

constexpr int kSquareChunks = kBlockSize / kChunkSize;  // of a row of the block
constexpr int kRowsBetween = kThreads / kSquareChunks;  // from one chunk of a thread to its next
constexpr int kSquareSlots = (kBlockRows + kRowsBetween - 1) / kRowsBetween;

// Where a thread's chunks are: its first row in the block, and the index of all of them in their rows.
struct SquarePlace {
  int first_row, index;

  JITNORM_INLINE int row(int slot) const { return first_row + slot * kRowsBetween; }
};

JITNORM_INLINE void load_square(const Arguments& a, const Square& square, SquarePlace place,
                                InputChunk (&chunks)[kSquareSlots]) {
  JITNORM_UNROLL
  for (int s = 0; s < kSquareSlots; ++s) {
    const bool is_there = place.row(s) < square.rows;
    const Int64 row = square.row + (is_there ? place.row(s) : 0);
    const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
    load_chunk(chunks[s], from, is_there ? place.index : kChunks);  // a chunk past the row is zero
  }
}

// The largest of the magnitudes that the threads of a block have seen. Those of a warp are compared as integers, with
// NaN the largest.
JITNORM_INLINE float largest_of_threads(float amax) {
  __shared__ float of_warps[kThreads / 32];
  const UInt32 of_warp = __reduce_max_sync(kFullWarp, bits_of(amax));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = float_of(of_warp);
  __syncthreads();
  float largest = 0.0f;
  JITNORM_UNROLL
  for (int w = 0; w < kThreads / 32; ++w) largest = max_magnitude(largest, of_warps[w]);
  return largest;
}

JITNORM_INLINE void store_square(const Arguments& a, const Square& square, SquarePlace place,
                                 const InputChunk (&chunks)[kSquareSlots], const BlockScale& scale) {
  JITNORM_UNROLL
  for (int s = 0; s < kSquareSlots; ++s) {
    if (place.row(s) >= square.rows) return;
    float y[kChunkSize];
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) y[i] = value_of(chunks[s], i);
    CodeChunk codes;
    encode_by(scale, y, codes);
    store_codes_alone(a.codes + row_offset(square.row + place.row(s), a.extents, a.codes_strides), place.index, codes);
  }
}

JITNORM_INLINE void quantize_square_item(const Arguments& a, Int64 item) {
  const Square square = square_at(a, item);
  const int thread = threadIdx.x;
  const SquarePlace place{thread / kSquareChunks, square.column / kChunkSize + thread % kSquareChunks};
  InputChunk chunks[kSquareSlots];
  load_square(a, square, place, chunks);
  float amax = 0.0f;
  JITNORM_UNROLL
  for (InputChunk& chunk : chunks) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) amax = max_magnitude(amax, value_of(chunk, i));
    forget_unpacked(chunk);
  }
  const BlockScale scale = scale_of_square(a, item, largest_of_threads(amax), thread == 0);
  store_square(a, square, place, chunks, scale);
}
