// What the combine stages of all targets compute of an input: its product with a scale; and where its gates stand.
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

// Where the gate of output `i` stands in a row of gates and values that take turns, kGateColumns at a time.
JITNORM_INLINE int gate_position(int i) { return i + i / kGateColumns * kGateColumns; }
