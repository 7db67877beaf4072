// Rotary position embedding: what the elements of a normalized head are turned to, by the angles of its token.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rounding.h"

#ifdef JITNORM_ROTATES
constexpr int kAngles = kRotarySize / 2;  // cosines in a row of the table, and sines behind them
constexpr bool kTurnsHalves = kRotation == Rotation::kHalves;

// The position of a row's token; -1 if it is not in the table, which leaves NaN of what is turned.
JITNORM_INLINE Int64 position_of_row(const Arguments& a, Int64 row) {
  const Int64 position = a.positions[row / a.heads];
  return position < a.angles_extents[0] ? position : -1;
}

#ifdef JITNORM_ROUNDS
// As below, rounded to the input's type: each product and the sum, or the result alone.
JITNORM_INLINE float turned(float y, float other, float cosine, float sine) {
  if constexpr (kRounding == Rounding::kOutput) return rounded(fma_rn(y, cosine, mul_rn(other, sine)));
  return rounded(add_rn(rounded(mul_rn(y, cosine)), rounded(mul_rn(other, sine))));
}

// An element that is not turned.
JITNORM_INLINE float unturned(float y) { return kRounding == Rounding::kOutput ? rounded(y) : y; }
#else
// An element, turned with the other of the two: y * cosine + other * sine, where the first of the two has -sine.
JITNORM_INLINE float turned(float y, float other, float cosine, float sine) {
  return fma_rn(y, cosine, mul_rn(other, sine));
}

JITNORM_INLINE float unturned(float y) { return y; }
#endif
#endif
