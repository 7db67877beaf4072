// The global scale of NVFP4, which multiplies the scales of blocks: none, given, or computed from the amax of the row
// or the tensor; then its inverse is stored for decoding.
#pragma once

#include "arguments.h"
#include "block_scale.h"
#include "intrinsics.h"
#include "tensor_amax.h"

// The largest scale of a block * 6 / amax. The divisor is opaque: where the quotient is infinite, GCC 13 concludes that
// amax was zero, although a tiny one overflows, too, and would make its decode scale zero.
JITNORM_INLINE float encode_scale_from(float amax) {
  const float finite = amax > kMaxFloat ? kMaxFloat : amax;
  const float exact = div_rn(kMaxBlockScale * 6.0f, opaque(finite));
  return exact > kMaxFloat ? kMaxFloat : exact;
}

JITNORM_INLINE float decode_scale_from(float amax, float encode_scale) {
  return amax == 0.0f ? 0.0f : with_positive_nan(reciprocal_rn(encode_scale));
}

// What a launch is given, as stored in memory: the scale, or the amax of the tensor, which another launch has computed.
JITNORM_INLINE GivenScale given_global_scale(const Arguments& a) {
#ifdef JITNORM_TENSOR_AMAX
  return given_amax(a);
#else
  if constexpr (kGlobalScale == GlobalScaleKind::kGiven) return *a.global_scale;
  return 0.0f;
#endif
}

// What all rows use of it.
struct PreparedGlobalScale {
  float amax, encode_scale;  // of the tensor
  GlobalScale global;
};

JITNORM_INLINE PreparedGlobalScale prepare_global_scale(const Arguments& a, const GivenScale& given) {
#ifdef JITNORM_TENSOR_AMAX
  const float amax = tensor_amax(given), scale = encode_scale_from(amax);
  return {amax, scale, global_scale_from(a, scale)};
#else
  if constexpr (kGlobalScale == GlobalScaleKind::kRow) return {};
  return {0.0f, 0.0f, global_scale_from(a, kInvertsGlobalScale ? reciprocal_rn(given) : given)};
#endif
}

// The global scale of a row's blocks; stores the inverse of a computed one.
JITNORM_INLINE GlobalScale global_scale_of_row(const Arguments& a, Int64 row, PreparedGlobalScale prepared,
                                               float row_amax, bool is_writer) {
  if constexpr (kGlobalScale == GlobalScaleKind::kRow) {
    const float scale = encode_scale_from(row_amax);
    if (is_writer) a.row_scale[row] = decode_scale_from(row_amax, scale);
    return global_scale_from(a, scale);
  } else {
    const bool is_found = kGlobalScale == GlobalScaleKind::kTensor;
    if (is_found && is_writer && row == 0) {
      *a.tensor_scale = decode_scale_from(prepared.amax, prepared.encode_scale);
      *a.amax = prepared.amax;
    }
    return prepared.global;
  }
}
