// The encode stage with a scale for each block: NVFP4, MXFP4, MXFP8 and FP8 groups.
#pragma once

#include "../common/block_scale.h"
#include "../common/global_scale.h"
#include "../common/rows.h"
#include "../common/scale_layout.h"
#include "codes.h"
#include "row_reduce.h"

constexpr int kBlockChunks = kBlockSize / kChunkSize;
constexpr int kTileBlocks = kLanes / kBlockChunks;

struct RowEncoding {
  UInt8* to;
  GlobalScale global;
};

JITNORM_INLINE RowEncoding begin_row(const Arguments& a, Int64 row, float row_amax) {
  store_zero_scales(a, row, kScaleColumns, 0, 1);
  return {a.codes + row_offset(row, a.extents, a.codes_strides),
          global_scale_of_row(a, row, prepare_global_scale(a, given_global_scale(a)), row_amax, true)};
}

// The largest magnitude of the block that each chunk belongs to.
JITNORM_INLINE void find_block_amaxes(const Tile& y, float (&amax)[kLanes]) {
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) amax[k] = 0.0f;
  raise_to_chunks(y, amax);
  JITNORM_UNROLL
  for (int step = 1; step < kBlockChunks; step *= 2) {
    float other[kLanes];
    JITNORM_LANES
    for (int k = 0; k < kLanes; ++k) other[k] = amax[k ^ step];
    JITNORM_LANES
    for (int k = 0; k < kLanes; ++k) amax[k] = max_magnitude(amax[k], other[k]);
  }
}

JITNORM_INLINE void encode_tile(const Arguments& a, Int64 row, int t, const Tile& y, RowEncoding encoding) {
  float amax[kLanes];
  find_block_amaxes(y, amax);
  UInt32 stored[kLanes], keep[kLanes], fill[kLanes];
  float encode[kLanes];
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) {
    float chunk[kChunkSize];
    take_chunk(y, k, chunk);
    const BlockScale scale = choose_scale(chunk, amax[k], encoding.global);
    stored[k] = scale.stored;
    encode[k] = scale.encode;
    keep[k] = scale.keep;
    fill[k] = scale.fill;
  }
  TileCodes codes;
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) {
    float chunk[kChunkSize];
    take_chunk(y, k, chunk);
    JITNORM_UNROLL
    for (int w = 0; w < kChunkWords; ++w) {
      const UInt32 word = encode_lane_word(chunk + w * kCodesPerWord, encode[k]);
      codes[k * kChunkWords + w] = (word & keep[k]) | fill[k];
    }
  }
  store_codes(codes, t, encoding.to);
  for (int b = 0; b < kTileBlocks; ++b) {
    const int column = t * kTileBlocks + b;
    if (column < kScaleColumns) store_scale(a, row, column, stored[b * kBlockChunks]);
  }
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row) { store_zero_scales(a, row, 0, 0, 1); }
