// The encode stage of FP8 with one scale for the row or the tensor.
#pragma once

#include "../common/fp8_scale.h"
#include "../common/rows.h"
#include "codes.h"

struct RowEncoding {
  UInt8* to;
  float factor;  // codes are those of y * factor
};

JITNORM_INLINE RowEncoding begin_row(const Arguments& a, Int64 row, float row_amax) {
  return {a.codes + row_offset(row, a.extents, a.codes_strides),
          fp8_factor_of(fp8_scale_of_row(a, row, prepare_fp8_scale(a, given_fp8_scale(a)), row_amax, true))};
}

JITNORM_INLINE void encode_tile(const Arguments&, Int64, int t, const Tile& y, RowEncoding encoding) {
  TileCodes codes;
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) {
    float chunk[kChunkSize];
    take_chunk(y, k, chunk);
    JITNORM_UNROLL
    for (int w = 0; w < kChunkWords; ++w) {
      codes[k * kChunkWords + w] = encode_lane_word(chunk + w * kCodesPerWord, encoding.factor);
    }
  }
  store_codes(codes, t, encoding.to);
}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
