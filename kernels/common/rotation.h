// Rotary position embedding: rotates the elements of a head by the angles of its token.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rounding.h"

#ifdef JITNORM_ROTATES
constexpr int kAngles = kRotarySize / 2;  // cosines in a row of the table, followed by as many sines
constexpr bool kTurnsHalves = kRotation == Rotation::kHalves;

// The token whose head a row is. The last dimension of rows is usually that of heads, and row_offset() divides by it in
// 32 bits: reuse that quotient, which the compiler would otherwise compute again.
JITNORM_INLINE Int64 token_of_row(const Arguments& a, Int64 row) {
  if constexpr (kRowDims == 1) return row / a.heads;
  const Int64 innermost = a.extents[kRowDims - 1];
  UInt32 token = concealed((UInt32)row / (UInt32)innermost);
  if (innermost != a.heads) token = (UInt32)(row / a.heads);
  return token;
}

// Whether the table has a position; elements rotated by any other become NaN.
JITNORM_INLINE bool is_in_table(const Arguments& a, Int64 position) {
  return (UInt64)position < (UInt64)a.angles_extents[0];
}

#ifdef JITNORM_ROUNDS
// As below, rounded to the input's type: each product and the sum, or only the result.
JITNORM_INLINE float turned(float y, float other, float cosine, float sine) {
  if constexpr (kRounding == Rounding::kOutput) return rounded(fma_rn(y, cosine, mul_rn(other, sine)));
  return rounded(add_rn(rounded(mul_rn(y, cosine)), rounded(mul_rn(other, sine))));
}

// An element that is not rotated.
JITNORM_INLINE float unturned(float y) { return kRounding == Rounding::kOutput ? rounded(y) : y; }
#else
// An element rotated with its partner: y * cosine + other * sine, with -sine for the first of the two.
JITNORM_INLINE float turned(float y, float other, float cosine, float sine) {
  return fma_rn(y, cosine, mul_rn(other, sine));
}

JITNORM_INLINE float unturned(float y) { return y; }
#endif
#endif
