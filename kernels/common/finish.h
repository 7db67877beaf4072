// The finish stage: the step between a norm and its encoding, if there is one.
#pragma once

#include "activation.h"
#include "configuration.h"
#include "rounding.h"

#ifdef JITNORM_FINISHES
// Values are rounded when they are stored.
template <typename Floats>
JITNORM_INLINE Floats rounded_finish(Floats value) {
#ifdef JITNORM_ROUNDS
  return kEncoding == Encoding::kValues ? value : rounded(value);
#else
  return value;
#endif
}

#ifdef JITNORM_MODULATES
// A norm times 1 plus a scale, plus a shift, to both of which a bias may be added.
JITNORM_INLINE float modulated(float y, float scale, float scale_bias, float shift, float shift_bias) {
  const float whole_scale = kHasModulationBias ? add_rn(scale, scale_bias) : scale;
  const float whole_shift = kHasModulationBias ? add_rn(shift, shift_bias) : shift;
  return rounded_finish(fma_rn(y, add_rn(1.0f, whole_scale), whole_shift));
}
#endif
#endif
