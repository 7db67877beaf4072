// Rounding to the input's type, of norms and activations that are rounded before they are encoded.
#pragma once

#include "intrinsics.h"

#ifdef JITNORM_ROUNDS
JITNORM_INLINE float rounded(float x) {
  Input result;
  round_to(x, result);
  return to_float(result);
}

// What is rounded step by step.
JITNORM_INLINE float rounded_step(float x) { return kRounding == Rounding::kOutput ? x : rounded(x); }
JITNORM_INLINE float rounded_sum(float x) { return kRounding == Rounding::kEachStep ? rounded(x) : x; }
#endif
