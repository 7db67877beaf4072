// The encode stage with a scale for each block: NVFP4, MXFP4, MXFP8 and FP8 groups.
#pragma once

#include "../common/block_scale.h"
#include "../common/global_scale.h"
#include "../common/rows.h"
#include "../common/scale_layout.h"
#include "code_chunk.cuh"
#include "fast_blocks.cuh"
#include "row_reduce.cuh"

constexpr int kLanesPerBlock = kBlockSize / kChunkSize;
static_assert(kBlockSize % kChunkSize == 0 && kHiddenSize % kBlockSize == 0, "a block is whole chunks");
static_assert(kLanesPerBlock <= kLanesPerRow, "a block's lanes are of one row");

typedef PreparedGlobalScale CallScale;

JITNORM_INLINE float given_of(const Arguments& a) { return given_global_scale(a); }
JITNORM_INLINE CallScale call_scale_of(const Arguments& a, float given) { return prepare_global_scale(a, given); }

struct EncodeContext {
  const Arguments* arguments;
  Int64 row;
  UInt8* codes;
  GlobalScale global;
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, CallScale call, float row_amax, bool is_writer) {
  const GlobalScale global = global_scale_of_row(a, row, call, row_amax, is_writer);
  return {&a, row, a.codes + row_offset(row, a.extents, a.codes_strides), global};
}

// Encodes any block; the bits of its scale.
JITNORM_INLINE UInt32 encode_block(CodeChunk& codes, const float (&y)[kChunkSize], float amax, GlobalScale global) {
  const BlockScale scale = choose_scale(y, amax, global);
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    codes.words[i] = (encode_word(y + kCodesPerWord * i, scale.encode) & scale.keep) | scale.fill;
  }
  return scale.stored;
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float amax) {
  const float block_amax = butterfly_max<kLanesPerBlock>(amax);
  CodeChunk codes;
  UInt32 stored;
  const FastBlock fast = kHasFastBlocks ? fast_block(block_amax, context.global) : FastBlock{};
  if (kHasFastBlocks && takes_fast_path(block_amax, fast)) {
    stored = encode_fast_block(codes, y, fast);
  } else {
    stored = encode_block(codes, y, block_amax, context.global);
  }
  if (index >= kChunks) return;
  store_codes(context.codes, index, codes);
  if (index % kLanesPerBlock == 0) store_scale(*context.arguments, context.row, index / kLanesPerBlock, stored);
}

JITNORM_INLINE void end_row(const EncodeContext& context, int thread) {
  store_zero_scales(*context.arguments, context.row, kScaleColumns, thread, kThreadsPerRow);
}

JITNORM_INLINE void write_padding_row(const Arguments& a, Int64 row, int thread) {
  store_zero_scales(a, row, 0, thread, kThreadsPerRow);
}
