// The finish stage: what follows a norm before it is encoded, where anything does.
#pragma once

#include "activation.h"
#include "configuration.h"
#include "rounding.h"

#ifdef JITNORM_FINISHES
// The activation of a norm, or its product with that of a gate.
JITNORM_INLINE float finished(float y, float gate) {
  const float value = kFinish == Finish::kGated ? mul_rn(y, activated<kActivation>(gate)) : activated<kActivation>(y);
#ifdef JITNORM_ROUNDS
  return kEncoding == Encoding::kValues ? value : rounded(value);  // values are rounded when they are stored
#else
  return value;
#endif
}
#endif
