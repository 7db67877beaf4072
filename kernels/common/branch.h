// The sum of a residual and a branch of a network, which may first be multiplied by a gate and a number.
#pragma once

#include "configuration.h"
#include "intrinsics.h"

#ifdef JITNORM_BRANCH
JITNORM_INLINE float branch_factor(float gate, float bias, float scale) {
  if constexpr (!kHasBranchGate) return scale;
  const float whole = kHasGateBias ? add_rn(gate, bias) : gate;
  return kHasBranchScale ? mul_rn(whole, scale) : whole;
}

JITNORM_INLINE float branch_sum(float x, float factor, float residual) {
  if constexpr (!kHasBranchGate && !kHasBranchScale) return kHasResidual ? add_rn(x, residual) : x;
  return kHasResidual ? fma_rn(x, factor, residual) : mul_rn(x, factor);
}
#endif
