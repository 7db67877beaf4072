// What the combine stages of all targets compute from an input: its product with a scale, and the place of its gates.
#pragma once

#include "activation.h"
#include "arguments.h"
#include "intrinsics.h"
#include "rounding.h"

// An input in E4M3 with a given global encode scale g is an FP8 tensor whose scale is 6 / g, in which g stands for
// 448 * 6 / amax.
JITNORM_INLINE float input_scale(const Arguments& a) {
  if constexpr (kCombine != Combine::kRescaled) return 1.0f;
  const float given = *a.global_scale;
  return mul_rn(kMaxCode, reciprocal_rn(kInvertsGlobalScale ? reciprocal_rn(given) : given));
}

JITNORM_INLINE float rescaled(float x, float scale) { return kCombine == Combine::kRescaled ? mul_rn(x, scale) : x; }

// The column of output `i`'s gate in a row of gates and values that alternate, kGateColumns at a time.
JITNORM_INLINE int gate_position(int i) { return i + i / kGateColumns * kGateColumns; }

template <typename Floats>
JITNORM_INLINE Floats factor_of_gate(Floats value) {
  return of_each([](float each) { return factor_of_gate<kActivation>(each); }, value);
}

#ifdef JITNORM_ROUNDS
// The activation of a gate, times the value. Before `quantize` encodes it, the result or each step is rounded to the
// input's type.
template <typename Floats>
JITNORM_INLINE Floats gated_by(Floats activation, Floats value) {
  const Floats factor = factor_of_gate(value);
  if constexpr (kOp != Op::kQuantize) return mul_rn(activation, factor);
  const Floats product = mul_rn(rounded_step(activation), factor);
  return kEncoding == Encoding::kValues ? product : rounded(product);  // values are rounded when they are stored
}

// An activation as `quantize` encodes it.
template <typename Floats>
JITNORM_INLINE Floats rounded_activation(Floats activation) {
  return kOp == Op::kQuantize ? rounded(activation) : activation;
}
#else
// The activation of a gate, times the value.
template <typename Floats>
JITNORM_INLINE Floats gated_by(Floats activation, Floats value) {
  return mul_rn(activation, factor_of_gate(value));
}

template <typename Floats>
JITNORM_INLINE Floats rounded_activation(Floats activation) {
  return activation;
}
#endif

// The activation of a value.
template <typename Floats>
JITNORM_INLINE Floats activated_value(Floats x) {
  return rounded_activation(activated<kActivation>(x));
}

template <typename Floats>
JITNORM_INLINE Floats gated(Floats gate, Floats value) {
  return gated_by(activated<kActivation>(gate), value);
}
