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

JITNORM_INLINE FloatPair add_rn(FloatPair a, FloatPair b) {
  FloatPair sum = 0.0f;
  asm("{\n"
      ".reg .b64 a, b;\n"
      "mov.b64 a, {%2, %3};\n"
      "mov.b64 b, {%4, %5};\n"
      "add.rn.f32x2 a, a, b;\n"
      "mov.b64 {%0, %1}, a;\n"
      "}"
      : "=f"(sum.first), "=f"(sum.second)
      : "f"(a.first), "f"(a.second), "f"(b.first), "f"(b.second));
  return sum;
}

JITNORM_INLINE FloatPair mul_rn(FloatPair a, FloatPair b) {
  FloatPair product = 0.0f;
  asm("{\n"
      ".reg .b64 a, b;\n"
      "mov.b64 a, {%2, %3};\n"
      "mov.b64 b, {%4, %5};\n"
      "mul.rn.f32x2 a, a, b;\n"
      "mov.b64 {%0, %1}, a;\n"
      "}"
      : "=f"(product.first), "=f"(product.second)
      : "f"(a.first), "f"(a.second), "f"(b.first), "f"(b.second));
  return product;
}

JITNORM_INLINE FloatPair fma_rn(FloatPair a, FloatPair b, FloatPair c) {
  FloatPair sum = 0.0f;
  asm("{\n"
      ".reg .b64 a, b, c;\n"
      "mov.b64 a, {%2, %3};\n"
      "mov.b64 b, {%4, %5};\n"
      "mov.b64 c, {%6, %7};\n"
      "fma.rn.f32x2 a, a, b, c;\n"
      "mov.b64 {%0, %1}, a;\n"
      "}"
      : "=f"(sum.first), "=f"(sum.second)
      : "f"(a.first), "f"(a.second), "f"(b.first), "f"(b.second), "f"(c.first), "f"(c.second));
  return sum;
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
