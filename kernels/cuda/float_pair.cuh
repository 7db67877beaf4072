// Pairs of floats, which Blackwell's data center GPUs add and multiply with one instruction: each is rounded as it
// would be alone.
#pragma once

#include "intrinsics.cuh"

#ifdef JITNORM_PACKS_FLOATS
struct FloatPair {
  float first, second;

  JITNORM_INLINE FloatPair(float both) : first(both), second(both) {}
  JITNORM_INLINE FloatPair(float first, float second) : first(first), second(second) {}
  JITNORM_INLINE FloatPair operator-() const { return {-first, -second}; }
};

JITNORM_INLINE UInt64 bits_of(FloatPair a) {
  UInt64 bits;
  asm("mov.b64 %0, {%1, %2};" : "=l"(bits) : "f"(a.first), "f"(a.second));
  return bits;
}

JITNORM_INLINE FloatPair pair_of(UInt64 bits) {
  FloatPair a = 0.0f;
  asm("mov.b64 {%0, %1}, %2;" : "=f"(a.first), "=f"(a.second) : "l"(bits));
  return a;
}

JITNORM_INLINE FloatPair add_rn(FloatPair a, FloatPair b) {
  UInt64 sum;
  asm("add.rn.f32x2 %0, %1, %2;" : "=l"(sum) : "l"(bits_of(a)), "l"(bits_of(b)));
  return pair_of(sum);
}

JITNORM_INLINE FloatPair mul_rn(FloatPair a, FloatPair b) {
  UInt64 product;
  asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(product) : "l"(bits_of(a)), "l"(bits_of(b)));
  return pair_of(product);
}

JITNORM_INLINE FloatPair fma_rn(FloatPair a, FloatPair b, FloatPair c) {
  UInt64 sum;
  asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(sum) : "l"(bits_of(a)), "l"(bits_of(b)), "l"(bits_of(c)));
  return pair_of(sum);
}

// What has no instruction for pairs.
template <typename Function, typename... Others>
JITNORM_INLINE FloatPair of_each(Function function, FloatPair a, Others... others) {
  return {function(a.first, others.first...), function(a.second, others.second...)};
}

JITNORM_INLINE FloatPair approximate_reciprocal(FloatPair a) {
  return {approximate_reciprocal(a.first), approximate_reciprocal(a.second)};
}

JITNORM_INLINE FloatPair approximate_power_of_two(FloatPair a) {
  return {approximate_power_of_two(a.first), approximate_power_of_two(a.second)};
}

JITNORM_INLINE FloatPair magnitude_of(FloatPair a) { return {magnitude_of(a.first), magnitude_of(a.second)}; }

JITNORM_INLINE FloatPair min_or_limit(FloatPair a, float limit) {
  return {min_or_limit(a.first, limit), min_or_limit(a.second, limit)};
}

JITNORM_INLINE FloatPair max_or_limit(FloatPair a, float limit) {
  return {max_or_limit(a.first, limit), max_or_limit(a.second, limit)};
}

JITNORM_INLINE FloatPair max_or_nan(FloatPair a, float limit) {
  return {max_or_nan(a.first, limit), max_or_nan(a.second, limit)};
}
#endif
