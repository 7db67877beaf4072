// Rotary position embedding: what the elements of a head are turned to, by the angles of its token.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rounding.h"

#ifdef JITNORM_ROTATES
constexpr int kAngles = kRotarySize / 2;  // cosines in a row of the table, and sines behind them
constexpr bool kTurnsHalves = kRotation == Rotation::kHalves;

// The token whose head a row is. The last dimension of rows is mostly that of heads, and row_offset() divides by it:
// that quotient will do, which the compiler would take for one more.
JITNORM_INLINE Int64 token_of_row(const Arguments& a, Int64 row) {
  const Int64 innermost = a.extents[kRowDims - 1];
  if constexpr (kRowDims == 1) return row / a.heads;
  Int64 token = concealed(row / innermost);
  if (innermost != a.heads) token = row / a.heads;
  return token;
}

// Whether the table has a position; what is turned by another is NaN.
JITNORM_INLINE bool is_in_table(const Arguments& a, Int64 position) {
  return (UInt64)position < (UInt64)a.angles_extents[0];
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
