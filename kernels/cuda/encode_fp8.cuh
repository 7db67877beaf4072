// The encode stage of FP8 with one scale for the row or the tensor.
#pragma once

#include "../common/fp8_scale.h"
#include "../common/rows.h"
#include "code_chunk.cuh"
#include "row_reduce.cuh"

typedef float CallScale;

JITNORM_INLINE float given_of(const Arguments& a) { return given_fp8_scale(a); }
JITNORM_INLINE CallScale call_scale_of(const Arguments& a, float given) { return prepare_fp8_scale(a, given); }

struct EncodeContext {
  UInt8* codes;
  float factor;  // codes are those of y * factor
};

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, CallScale call, float row_amax, bool is_writer) {
  const float scale = fp8_scale_of_row(a, row, call, row_amax, is_writer);
  return {a.codes + row_offset(row, a.extents, a.codes_strides), fp8_factor_of(scale)};
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float) {
  CodeChunk codes;
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) codes.words[i] = encode_word(y + kCodesPerWord * i, context.factor);
  store_codes(context.codes, index, codes);
}

JITNORM_INLINE void end_row(const EncodeContext&, int) {}
JITNORM_INLINE void write_padding_row(const Arguments&, Int64, int) {}
