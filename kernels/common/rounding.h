// Rounding to the input's type, of norms and activations that are rounded before they are encoded.
#pragma once

#include "packed.h"

#ifdef JITNORM_ROUNDS
template <typename T>
JITNORM_INLINE float rounded_to(float x, T result) {
  round_to(x, result);
  return to_float(result);
}

template <typename Floats>
JITNORM_INLINE Floats rounded(Floats x) {
  return of_each([](float each) { return rounded_to(each, Input{}); }, x);
}

// Rounding for values that are rounded step by step.
template <typename Floats>
JITNORM_INLINE Floats rounded_step(Floats x) {
  return kRounding == Rounding::kOutput ? x : rounded(x);
}
JITNORM_INLINE float rounded_sum(float x) { return kRounding == Rounding::kEachStep ? rounded(x) : x; }
#endif
