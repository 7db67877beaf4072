// What the combine stages of all targets compute of an input: its product with a scale, SiLU.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

// An input in E4M3 with a given global encode scale g is an FP8 tensor whose scale is 6 / g, in which g stands for
// 448 * 6 / amax.
JITNORM_INLINE float input_scale(const Arguments& a) {
  if constexpr (kCombine != Combine::kRescaled) return 1.0f;
  const float given = *a.global_scale;
  return mul_rn(kMaxCode, reciprocal_rn(kInvertsGlobalScale ? reciprocal_rn(given) : given));
}

JITNORM_INLINE float rescaled(float x, float scale) { return kCombine == Combine::kRescaled ? mul_rn(x, scale) : x; }

// 1 / (1 + e^-t) for a t of at most 87 in magnitude: e^-t is 2^n e^r with r at most half of ln 2 in magnitude.
JITNORM_INLINE float sigmoid(float t) {
  // Added to 1.5 * 2^23, a float is rounded to a whole number, which its lowest bits hold.
  const float shifted = fma_rn(t, -0x1.715476p+0f, 0x1.8p23f);
  const float n = add_rn(shifted, -0x1.8p23f);
  const float r = fma_rn(n, -0x1.7f7d1cp-20f, fma_rn(n, -0x1.62e4p-1f, -t));
  float p = 0x1.0fa82p-7f;  // the polynomial 1 + r q(r) nearest to e^r
  p = fma_rn(p, r, 0x1.573a6cp-5f);
  p = fma_rn(p, r, 0x1.555a6cp-3f);
  p = fma_rn(p, r, 0x1.fffdc6p-2f);
  p = fma_rn(p, r, 0x1.fffff6p-1f);
  p = fma_rn(p, r, 1.0f);
  const float power = float_of(bits_of(shifted) * 0x800000u + 0x3f800000u);  // 2^n
  const float d = fma_rn(p, power, 1.0f);
  // A division costs more than this reciprocal: the exponent is negated, and each of Newton's steps doubles the right
  // bits.
  float y = float_of(0x7ef311c3u - bits_of(d));
  y = fma_rn(y, fma_rn(-d, y, 1.0f), y);
  y = fma_rn(y, fma_rn(-d, y, 1.0f), y);
  return fma_rn(y, fma_rn(-d, y, 1.0f), y);
}

// SiLU, gate / (1 + e^-gate), of additions and multiply-adds alone, so that its bits agree on every target. Gates below
// -87 count as -87; their SiLU is nothing but the sign.
JITNORM_INLINE float silu(float gate) {
  const float bounded = max_or_nan(gate, -87.0f);
  return mul_rn(bounded, sigmoid(min_or_limit(bounded, 87.0f)));
}

// Where the gate of output `i` stands in a row of gates and values that take turns, kGateColumns at a time.
JITNORM_INLINE int gate_position(int i) { return i + i / kGateColumns * kGateColumns; }
