// An input in E4M3 with a given global encode scale g is an FP8 tensor whose scale is 6 / g, in which g stands for
// 448 * 6 / amax.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

JITNORM_INLINE float input_scale(const Arguments& a) {
  if constexpr (kCombine != Combine::kRescaled) return 1.0f;
  const float given = *a.global_scale;
  return mul_rn(kMaxCode, reciprocal_rn(kInvertsGlobalScale ? reciprocal_rn(given) : given));
}

JITNORM_INLINE float rescaled(float x, float scale) { return kCombine == Combine::kRescaled ? mul_rn(x, scale) : x; }
