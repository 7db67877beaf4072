// GELU of bfloat16 that is rounded to bfloat16. Shorter programs give the same bytes for each of the 65536 values, even
// if powers were off by 16 ulp instead of 2: on Hopper, 21.8 instructions per element of rows of 4096 instead of 31.9,
// by tanh 16.1 instead of 28.1. At 12 drawn shapes, an H200 takes 0.80 to 0.99 of the time by tanh.
#pragma once

#include "../common/activation.h"
#include "chunks.cuh"

JITNORM_INLINE constexpr bool is_bfloat16(BFloat16) { return true; }
template <typename T>
JITNORM_INLINE constexpr bool is_bfloat16(T) {
  return false;
}

// Another activation is the same if it is to be rounded.
template <Activation kOther>
struct ActivationToRound : ActivationOf<kOther> {};

// max(x, 0) - a tail(a). The polynomial was fitted by linear programming to what the rounding allows the tail of each
// value to be, from whose ends it is 2^-17.5 away. At 1 it is 1/2: halves of the smallest normal values are ties.
template <>
struct ActivationToRound<Activation::kGeluErf> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    const Floats a = min_or_limit(magnitude_of(x), 12.75f);
    const Floats w = approximate_power_of_two(mul_rn(mul_rn(a, a), -0x1.715476p-1f));
    const Floats t = fast_reciprocal(fma_rn(a, 0.359375f, 1.0f));
    Floats p = -0x1.828196p-4f;
    p = fma_rn(p, t, 0x1.f45b7p-3f);
    p = fma_rn(p, t, 0x1.7471a2p-5f);
    p = fma_rn(p, t, 0x1.4f3b54p-3f);
    p = fma_rn(p, t, 0x1.2041ep-3f);
    p = fma_rn(p, t, 0x1.2efbf2p-13f);
    return fma_rn(-a, mul_rn(w, p), max_or_nan(x, -0.0f));
  }
};

// x / (1 + e^-2u), without the low parts of the factors. The sum with 1 makes the power of the smallest values exact.
template <>
struct ActivationToRound<Activation::kGeluTanh> {
  template <typename Floats>
  JITNORM_FORCE_INLINE static Floats at(Floats x) {
    const Floats b = max_or_nan(x, -9.96875f);
    const Floats factor = fma_rn(mul_rn(b, b), 0x1.a5a7dp-4f, 0x1.26aecp+1f);
    const Floats w = approximate_power_of_two(add_rn(fma_rn(-b, factor, 1.0f), -1.0f));
    return mul_rn(b, fast_reciprocal(add_rn(w, 1.0f)));
  }
};
