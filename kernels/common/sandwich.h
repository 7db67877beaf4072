// The sum of a normalized input and a residual, which is normalized in turn: norms before and after a layer, as in
// Gemma 3.
#pragma once

#include "configuration.h"
#include "intrinsics.h"
#include "rounding.h"

#ifdef JITNORM_SANDWICH
JITNORM_INLINE float normalized_sum(float x, float rstd, float factor, float residual) {
  const float scaled = mul_rn(x, rstd);
#ifdef JITNORM_ROUNDS
  const float y = rounded_step(mul_rn(kHasUnitBias ? scaled : rounded_step(scaled), factor));
  return rounded_sum(add_rn(y, residual));
#else
  return add_rn(mul_rn(scaled, factor), residual);
#endif
}
#endif
