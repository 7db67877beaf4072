// Rounding to the input's type, of norms and activations that are rounded before they are encoded.
#pragma once

#include "intrinsics.h"

#ifdef JITNORM_ROUNDS
template <typename T>
JITNORM_INLINE float rounded_to(float x, T result) {
  round_to(x, result);
  return to_float(result);
}

JITNORM_INLINE float rounded(float x) { return rounded_to(x, Input{}); }

// Rounding for values that are rounded step by step.
JITNORM_INLINE float rounded_step(float x) { return kRounding == Rounding::kOutput ? x : rounded(x); }
JITNORM_INLINE float rounded_sum(float x) { return kRounding == Rounding::kEachStep ? rounded(x) : x; }
#endif
