// The encode stage without codes: values rounded to the input's type, or nothing but the largest magnitude of all rows.
#pragma once

#include "../common/rows.h"
#include "row_reduce.cuh"

// No scale is given.
struct CallScale {};

JITNORM_INLINE float given_of(const Arguments&) { return 0.0f; }
JITNORM_INLINE CallScale call_scale_of(const Arguments&, float) { return {}; }

struct EncodeContext {
  Output* row;
};

JITNORM_INLINE void raise_amax(const Arguments& a, float row_amax) {
  constexpr int kWriters = 32 * kWarpsPerRow;  // threads that know the largest magnitude together
  const float amax = butterfly_max<32>(row_amax);
  // As integers, magnitudes have the same order, NaN above infinity.
  if (threadIdx.x % kWriters == 0) atomicMax(reinterpret_cast<UInt32*>(a.amax), bits_of(amax));
}

JITNORM_INLINE EncodeContext begin_row(const Arguments& a, Int64 row, CallScale, float row_amax, bool) {
  if constexpr (kEncoding == Encoding::kAmax) raise_amax(a, row_amax);
  return {a.out + row_offset(row, a.extents, a.out_strides)};
}

JITNORM_INLINE void encode_chunk(const EncodeContext& context, int index, const float (&y)[kChunkSize], float) {
  if constexpr (kEncoding == Encoding::kValues) store_rounded(context.row, index, y);
}

JITNORM_INLINE void end_row(const EncodeContext&, int) {}
JITNORM_INLINE void write_padding_row(const Arguments&, Int64, int) {}
