// From the values of codes to results: the scales that encoding divided by.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

// What a block's values were scaled by.
struct DecodeContext {
  float scale, global_scale;
};

JITNORM_INLINE float undo_global_scale(float value, float scale) {
  if constexpr (kGlobalScale == GlobalScaleKind::kNone) return value;
  return kGlobalScale == GlobalScaleKind::kGiven ? div_rn(value, scale) : mul_rn(value, scale);
}

// The result from the value of a code, number i of several with their own scales.
JITNORM_INLINE void rescale_to(Output& to, float value, const DecodeContext& context, int) {
  round_to(undo_global_scale(mul_rn(value, context.scale), context.global_scale), to);
}

JITNORM_INLINE void rescale_to(Output& to, float value, const float* scales, int i) {
  round_to(mul_rn(value, scales[i]), to);
}
