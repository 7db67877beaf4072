// The encode stage, which writes the chunks of a row. Each alternative prepares what all rows need of the arguments,
// begins a row, encodes its chunks, ends it, and writes the rows that pad the layout of scales.
#pragma once

#include "../common/block_scale.h"
#include "../common/fp8_scale.h"
#include "../common/given_scales.h"
#include "../common/global_scale.h"
#include "../common/pages.h"
#include "../common/rows.h"
#include "../common/scale_layout.h"
#include "fast_blocks.cuh"
#include "row_reduce.cuh"

template <Encoding>
struct Encoder;

// Values rounded to the input's type.
template <>
struct Encoder<Encoding::kValues> {
  Output* row;

  struct CallScale {};

  JITNORM_INLINE static float given(const Arguments&) { return 0.0f; }
  JITNORM_INLINE static CallScale prepare(const Arguments&, float) { return {}; }

  JITNORM_INLINE static Encoder begin_row(const Arguments& a, Int64 row, CallScale, float, bool) {
#ifdef JITNORM_WEIGHTS
    return {row_by_weight(a, 0, row)};
#else
    return {a.out + row_offset(row, a.extents, a.out_strides)};
#endif
  }

  JITNORM_INLINE void encode_chunk(int index, const float (&y)[kChunkSize], float) const {
    store_rounded(row, index, y);
  }

  JITNORM_INLINE void end_row(int) const {}
};

// The codes of a chunk: of its values times a factor.
JITNORM_INLINE CodeChunk codes_of(const float (&y)[kChunkSize], float factor) {
  CodeChunk chunk;
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) chunk.words[i] = encode_word<kElement>(y + kCodesPerWord * i, factor);
  return chunk;
}

// FP8 or INT8 with one scale for the row or the tensor.
template <>
struct Encoder<Encoding::kOneScale> {
  UInt8* codes;
  float factor;  // codes are those of y * factor

  typedef PreparedFp8Scale CallScale;

  JITNORM_INLINE static GivenScale given(const Arguments& a) { return given_fp8_scale(a); }
  JITNORM_INLINE static CallScale prepare(const Arguments& a, const GivenScale& given) {
    return prepare_fp8_scale(a, given);
  }

  JITNORM_INLINE static Encoder begin_row(const Arguments& a, Int64 row, CallScale call, float row_amax,
                                          bool is_writer) {
    const float scale = fp8_scale_of_row(a, row, call, row_amax, is_writer);
    return {a.codes + row_offset(row, a.extents, a.codes_strides), fp8_factor_of(scale)};
  }

  JITNORM_INLINE void encode_chunk(int index, const float (&y)[kChunkSize], float) const {
    store_codes(codes, index, codes_of(y, factor));
  }

  JITNORM_INLINE void end_row(int) const {}
};

// The codes of a word of a block with that scale.
JITNORM_INLINE UInt32 word_by(const BlockScale& scale, const float* y) {
  constexpr bool kConverts = kElement == Element::kE2M1 && kConvertsToFp8 && !kHasNativeE2M1;
  const UInt32 codes = kConverts ? bounded_e2m1(y, scale.encode) : encode_word<kElement>(y, scale.encode);
  return (codes & scale.keep) | scale.fill;
}

// Those of a chunk.
JITNORM_INLINE void encode_by(const BlockScale& scale, const float (&y)[kChunkSize], CodeChunk& codes) {
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    codes.words[i] = word_by(scale, y + kCodesPerWord * i);
  }
}

// Encodes any block; the bits of its scale.
JITNORM_INLINE UInt32 encode_any_block(CodeChunk& codes, const float (&y)[kChunkSize], float amax, GlobalScale global) {
  const BlockScale scale = choose_scale<kScaleChoice>(y, amax, global);
  encode_by(scale, y, codes);
  return scale.stored;
}

template <Element>
JITNORM_INLINE UInt32 encode_block(CodeChunk& codes, const float (&y)[kChunkSize], float amax, GlobalScale global,
                                   bool) {
  return encode_any_block(codes, y, amax, global);
}

// Whether the chunks of a row leave lanes idle.
constexpr bool kHasIdleLanes = kChunks % (kChunksPerLane * kThreadsPerRow) != 0;

// Whether all bits of a block's scale and codes are zero. Of -0, the scale has its sign.
JITNORM_INLINE bool vanishes(float amax, GlobalScale global) {
  if constexpr (kScaleFormat != ScaleFormat::kE4M3) return amax == 0.0f;
  constexpr bool kHasTwo = kScaleChoice == ScaleChoice::kFourOverSix;
  const float scale = mul_rn(amax, kHasTwo ? global.quarter : global.reciprocal_max);
  return bits_of(scale) <= bits_of(0x1p-10f);  // half of the least one
}

// Idle lanes take the fast path, too: with their zeros, the whole warp would take the other as well. On an H100, NVFP4
// of 32262 x 384 went from 0.61 of a copy to 0.82, four over six from 0.29 to 0.71.
template <>
JITNORM_INLINE UInt32 encode_block<Element::kE2M1>(CodeChunk& codes, const float (&y)[kChunkSize], float amax,
                                                   GlobalScale global, bool is_there) {
  if constexpr (!kHasNativeE2M1 || kScaleChoice == ScaleChoice::kFourOverSix) {
    const auto block = FastBlock<kScaleChoice>::of(amax, global);
    const bool is_idle = kHasIdleLanes && !is_there;
    if (holds_for_warp(is_idle || block.is_normal(amax))) return block.encode(codes, y);
    if (holds_for_warp(is_idle || vanishes(amax, global))) {
      codes = {};
      return 0;
    }
  }
  return encode_any_block(codes, y, amax, global);
}

// A scale for each block: NVFP4, MXFP4, MXFP8, FP8 and INT8 groups.
template <>
struct Encoder<Encoding::kBlocks> {
  const Arguments* arguments;
  Int64 row;
  UInt8* codes;
  GlobalScale global;

#ifdef JITNORM_SPLITS_CHUNKS
  static constexpr int kLanesPerBlock = kBlockSize / kHalf;
#else
  static constexpr int kLanesPerBlock = kBlockSize / kChunkSize;
#endif
  static_assert(kBlockSize % kChunkSize == 0 && kHiddenSize % kBlockSize == 0, "a block is whole chunks");
  static_assert(kLanesPerBlock <= kLanesPerRow, "a block's lanes are of one row");

  typedef PreparedGlobalScale CallScale;

  JITNORM_INLINE static GivenScale given(const Arguments& a) { return given_global_scale(a); }
  JITNORM_INLINE static CallScale prepare(const Arguments& a, const GivenScale& given) {
    return prepare_global_scale(a, given);
  }

  JITNORM_INLINE static Encoder begin_row(const Arguments& a, Int64 row, CallScale call, float row_amax,
                                          bool is_writer) {
    const GlobalScale global = global_scale_of_row(a, row, call, row_amax, is_writer);
    return {&a, row, a.codes + row_offset(row, a.extents, a.codes_strides), global};
  }

#ifdef JITNORM_SPLITS_CHUNKS
  // The halves belong to two blocks, each of which is either in the row or past it. Lanes exchange all before any
  // stores.
  JITNORM_INLINE void encode_chunk(int index, const float (&y)[kChunkSize], float) const {
    BlockScale scales[2];
    JITNORM_UNROLL
    for (int half = 0; half < 2; ++half) {
      float amax = magnitude_of(y[half * kHalf]);
      JITNORM_UNROLL
      for (int i = 1; i < kHalf; ++i) amax = max_magnitude(amax, y[half * kHalf + i]);
      scales[half] = choose_scale<kScaleChoice>(y, butterfly_max<kLanesPerBlock>(amax), global);
    }
    CodeChunk chunk;
    JITNORM_UNROLL
    for (int i = 0; i < kCodeWords; ++i) chunk.words[i] = word_by(scales[2 * i / kCodeWords], y + kCodesPerWord * i);
    store_codes(codes, index, chunk);
    JITNORM_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (index % kLanesPerBlock == 0 && has_half(index, half)) {
        store_scale(*arguments, row, place_in_row(index, half * kHalf) / kBlockSize, scales[half].stored);
      }
    }
  }
#else
  JITNORM_INLINE void encode_chunk(int index, const float (&y)[kChunkSize], float amax) const {
    CodeChunk chunk;
#ifdef JITNORM_BLOCKS_CROSS_WARPS
    const float of_block = amax;
#else
    const float of_block = butterfly_max<kLanesPerBlock>(amax);
#endif
    const bool is_there = index < kChunks;
    const UInt32 stored = encode_block<kElement>(chunk, y, of_block, global, is_there);
    if (!is_there) return;
    store_codes_alone(codes, index, chunk);
    if (index % kLanesPerBlock == 0) store_scale(*arguments, row, index / kLanesPerBlock, stored);
  }
#endif

  JITNORM_INLINE void end_row(int thread) const {
    store_zero_scales(*arguments, row, kScaleColumns, thread, kThreadsPerRow);
  }
};

#ifdef JITNORM_GIVEN_SCALES
// FP8 or INT8 with given scales, for rows, columns or blocks.
template <>
struct Encoder<Encoding::kGivenScales> {
  UInt8* codes;
  const float* scales;  // of the row

  struct CallScale {};

  JITNORM_INLINE static float given(const Arguments&) { return 0.0f; }
  JITNORM_INLINE static CallScale prepare(const Arguments&, float) { return {}; }

  JITNORM_INLINE static Encoder begin_row(const Arguments& a, Int64 row, CallScale, float, bool) {
    return {a.codes + row_offset(row, a.extents, a.codes_strides), given_scales_of(a, row)};
  }

  JITNORM_INLINE void encode_chunk(int index, const float (&y)[kChunkSize], float) const {
    // Values have been divided by the scales of columns.
    const float factor = kScalesColumns ? 1.0f : reciprocal_rn(given_scale_at(scales, index));
    store_codes(codes, index, codes_of(y, factor));
  }

  JITNORM_INLINE void end_row(int) const {}
};
#endif

#ifdef JITNORM_PAGES
// Queries as values, and keys in their places, either additionally or only there.
template <>
struct Encoder<Encoding::kPages> {
  Output* row;
  Page* pages;
  Place place;
  bool has_pages;

  typedef Place CallScale;  // because each thread has one row

  JITNORM_INLINE static float given(const Arguments&) { return 0.0f; }

  JITNORM_INLINE static CallScale prepare(const Arguments& a, Int64 row) {
    return a.has_pages ? place_of(a, a.key_cache, row) : Place{};
  }

  JITNORM_INLINE static Encoder begin_row(const Arguments& a, Int64 row, CallScale place, float, bool) {
    return {a.out + row_offset(row, a.extents, a.out_strides), a.key_cache.pages, place, a.has_pages};
  }

  // Either all threads of a block have queries, or all have keys.
  JITNORM_INLINE void encode_chunk(int index, const float (&y)[kChunkSize], float) const {
    if (kKeepsHeads || !has_pages) store_rounded(row, index, y);
    if (!has_pages) return;
    const int index_there = place.is_there ? index : kPastRow;  // or nowhere
    if constexpr (kHasEncodedPages) {
      store_codes_alone((UInt8*)pages + place.offset, index_there, codes_of(y, place.factor));
    } else {
      store_rounded((Output*)pages + place.offset, index_there, y);
    }
  }

  JITNORM_INLINE void end_row(int) const {}
};
#endif

typedef Encoder<kEncoding> RowEncoder;
