// The encode stage, which writes the tiles of a row. Each alternative begins a row, encodes its tiles, and writes the
// rows that pad the layout of scales.
#pragma once

#include "../common/block_scale.h"
#include "../common/fp8_scale.h"
#include "../common/given_scales.h"
#include "../common/global_scale.h"
#include "../common/pages.h"
#include "../common/rows.h"
#include "../common/scale_layout.h"
#include "codes.h"
#include "row_reduce.h"

template <Encoding>
struct Encoder;

// Values rounded to the input's type.
template <>
struct Encoder<Encoding::kValues> {
  Output *to, *next;

  JITNORM_INLINE Encoder begin_row(const Arguments& a, Int64 row, float) {
#ifdef JITNORM_WEIGHTS
    return {row_by_weight(a, 0, row), row_by_weight(a, 0, row_after(a, row))};
#else
    return {a.out + row_offset(row, a.extents, a.out_strides),
            a.out + row_offset(row_after(a, row), a.extents, a.out_strides)};
#endif
  }

#ifdef JITNORM_TWO_SIZES
  JITNORM_FORCE_INLINE void encode_tile(const Arguments& a, Int64, int t, const Tile& y) const {
    store_part_of_row(y, t, a.size, to);
  }
#else
  JITNORM_FORCE_INLINE void encode_tile(const Arguments&, Int64, int t, const Tile& y) const {
    prefetch_tile(next, t);
    store_tile(y, t, to);
  }
#endif
};

// Only the largest magnitude of all rows.
template <>
struct Encoder<Encoding::kAmax> {
  JITNORM_INLINE Encoder begin_row(const Arguments& a, Int64, float row_amax) {
    *a.amax = with_positive_nan(max_magnitude(*a.amax, row_amax));
    return {};
  }

  JITNORM_FORCE_INLINE void encode_tile(const Arguments&, Int64, int, const Tile&) const {}
};

// Stores the codes of tile t of a row: of its values times a factor.
JITNORM_INLINE void store_codes_of(const Tile& y, float factor, int t, UInt8* row) {
  TileCodes codes;
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) {
    float chunk[kChunkSize];
    take_chunk(y, k, chunk);
    JITNORM_UNROLL
    for (int w = 0; w < kChunkWords; ++w) {
      codes[k * kChunkWords + w] = encode_lane_word<kElement>(chunk + w * kCodesPerWord, factor);
    }
  }
  store_codes(codes, t, row);
}

// FP8 or INT8 with one scale for the row or the tensor.
template <>
struct Encoder<Encoding::kOneScale> {
  UInt8* to;
  float factor;  // codes are those of y * factor

  JITNORM_INLINE Encoder begin_row(const Arguments& a, Int64 row, float row_amax) {
    return {a.codes + row_offset(row, a.extents, a.codes_strides),
            fp8_factor_of(fp8_scale_of_row(a, row, prepare_fp8_scale(a, given_fp8_scale(a)), row_amax, true))};
  }

  JITNORM_FORCE_INLINE void encode_tile(const Arguments&, Int64, int t, const Tile& y) const {
    store_codes_of(y, factor, t, to);
  }
};

constexpr int kBlockChunks = kBlockSize / kChunkSize;
constexpr int kBlockTiles = kBlockChunks > kLanes ? kBlockChunks / kLanes : 1;
constexpr int kTileBlocks = kBlockChunks > kLanes ? 1 : kLanes / kBlockChunks;

#ifdef JITNORM_BLOCKS_CROSS_WARPS
// The largest magnitude of the block that each chunk of tile t belongs to, which may begin or end in a neighbouring
// tile.
JITNORM_INLINE void find_block_amaxes(const Tile& y, int t, float (&amax)[kLanes]) {
  float of_chunks[3][kLanes] = {};  // of the tile and its neighbours
  for (int i = t > 0 ? 0 : 1; i < (t + 1 < kRowTiles ? 3 : 2); ++i) raise_to_chunks((&y)[i - 1], of_chunks[i]);
  for (int k = 0; k < kLanes; ++k) {
    const int first = kLanes + k - (t * kLanes + k) % kBlockChunks;
    amax[k] = 0.0f;
    for (int i = first; i < first + kBlockChunks; ++i) {
      amax[k] = max_magnitude(amax[k], of_chunks[i / kLanes][i % kLanes]);
    }
  }
}
#else
// The largest magnitude of the block that each chunk of tile t belongs to. If blocks span tiles, those of the row lie
// side by side.
JITNORM_INLINE void find_block_amaxes(const Tile& y, int t, float (&amax)[kLanes]) {
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) amax[k] = 0.0f;
  const Tile* first = &y - t % kBlockTiles;
  for (int i = 0; i < kBlockTiles; ++i) raise_to_chunks(first[i], amax);
  JITNORM_UNROLL
  for (int step = 1; step < kLanes / kTileBlocks; step *= 2) {
    float other[kLanes];
    JITNORM_LANES
    for (int k = 0; k < kLanes; ++k) other[k] = amax[k ^ step];
    JITNORM_LANES
    for (int k = 0; k < kLanes; ++k) amax[k] = max_magnitude(amax[k], other[k]);
  }
}
#endif

// A scale for each block: NVFP4, MXFP4, MXFP8, FP8 and INT8 groups.
template <>
struct Encoder<Encoding::kBlocks> {
  UInt8* to;
  GlobalScale global;

  JITNORM_INLINE Encoder begin_row(const Arguments& a, Int64 row, float row_amax) {
    store_zero_scales(a, row, kScaleColumns, 0, 1);
    return {a.codes + row_offset(row, a.extents, a.codes_strides),
            global_scale_of_row(a, row, prepare_global_scale(a, given_global_scale(a)), row_amax, true)};
  }

  JITNORM_FORCE_INLINE void encode_tile(const Arguments& a, Int64 row, int t, const Tile& y) const {
    float amax[kLanes];
    find_block_amaxes(y, t, amax);
    UInt32 stored[kLanes], keep[kLanes], fill[kLanes];
    float encode[kLanes];
    JITNORM_LANES
    for (int k = 0; k < kLanes; ++k) {
      float chunk[kChunkSize];
      take_chunk(y, k, chunk);
      const BlockScale scale = choose_scale<kScaleChoice>(chunk, amax[k], global);
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
        const UInt32 word = encode_lane_word<kElement>(chunk + w * kCodesPerWord, encode[k]);
        codes[k * kChunkWords + w] = (word & keep[k]) | fill[k];
      }
    }
    store_codes(codes, t, to);
#ifdef JITNORM_BLOCKS_CROSS_WARPS
    for (int k = 0; k < kLanes; ++k) {
      const int index = t * kLanes + k;
      if (index < kChunks && index % kBlockChunks == 0) store_scale(a, row, index / kBlockChunks, stored[k]);
    }
#else
    for (int b = 0; b < kTileBlocks; ++b) {
      const int column = t * kTileBlocks / kBlockTiles + b;
      if (column < kScaleColumns) store_scale(a, row, column, stored[b * kBlockChunks]);
    }
#endif
  }
};

#ifdef JITNORM_GIVEN_SCALES
// Tile t of a row, each value times the reciprocal of its scale.
JITNORM_INLINE void scale_tile(const float* scales, int t, const Tile& y, Tile& scaled) {
  if constexpr (kScalesColumns) {
    load_tile(scales, kHiddenSize, t, scaled);
    for_each_value([&](int e, int k) { scaled.at[e][k] = mul_rn(y.at[e][k], reciprocal_rn(scaled.at[e][k])); });
  } else {
    float factor[kLanes];
    for (int k = 0; k < kLanes; ++k) factor[k] = reciprocal_rn(given_scale_at(scales, t * kLanes + k));
    for_each_value([&](int e, int k) { scaled.at[e][k] = mul_rn(y.at[e][k], factor[k]); });
  }
}

// FP8 or INT8 with given scales, for rows, columns or blocks.
template <>
struct Encoder<Encoding::kGivenScales> {
  UInt8* to;
  const float* scales;  // of the row

  JITNORM_INLINE Encoder begin_row(const Arguments& a, Int64 row, float) {
    return {a.codes + row_offset(row, a.extents, a.codes_strides), given_scales_of(a, row)};
  }

  JITNORM_FORCE_INLINE void encode_tile(const Arguments&, Int64, int t, const Tile& y) const {
    Tile scaled;
    scale_tile(scales, t, y, scaled);
    store_codes_of(scaled, 1.0f, t, to);
  }
};
#endif

#ifdef JITNORM_PAGES
// Writes tile t of a row to its place.
JITNORM_INLINE void store_in_page(const Tile& y, int t, const Cache& cache, const Place& place) {
  if (!place.is_there) return;
  if constexpr (kHasEncodedPages) {
    store_codes_of(y, place.factor, t, (UInt8*)cache.pages + place.offset);
  } else {
    store_tile(y, t, (Output*)cache.pages + place.offset);
  }
}

// Queries as values, and keys in their places, either additionally or only there.
template <>
struct Encoder<Encoding::kPages> {
  Output* to;
  Place place;

  JITNORM_INLINE Encoder begin_row(const Arguments& a, Int64 row, float) {
    const bool is_written = kKeepsHeads || !a.has_pages;
    return {is_written ? a.out + row_offset(row, a.extents, a.out_strides) : nullptr,
            a.has_pages ? place_of(a, a.key_cache, row) : Place{}};
  }

  JITNORM_FORCE_INLINE void encode_tile(const Arguments& a, Int64, int t, const Tile& y) const {
    if (to != nullptr) store_tile(y, t, to);
    store_in_page(y, t, a.key_cache, place);
  }
};
#endif

typedef Encoder<kEncoding> RowEncoder;
