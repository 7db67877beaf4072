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

struct Turn {
  float cosine, sine;
};

#ifdef JITNORM_FREQUENCIES
// The only row of the table has the frequencies of pairs, in 2^-64 turns per position: the high words of all, then the
// low ones. Elements at a negative position become NaN.
JITNORM_INLINE bool is_in_table(const Arguments&, Int64 position) { return position >= 0; }

JITNORM_INLINE const Angle* angles_at(const Arguments& a, Int64) { return a.angles; }

// Polynomials for up to an eighth of a turn from the nearest quarter.
JITNORM_INLINE Turn turn_of(Int64 position, UInt32 high, UInt32 low) {
  const UInt32 phase = (UInt32)((UInt64)position * ((UInt64)high << 32 | low) >> 32);
  const UInt32 quarter = phase + (1u << 29);  // its upper two bits
  const float x = mul_rn((float)(Int32)(phase - (quarter & 0xc0000000u)), 0x1p-30f), square = mul_rn(x, x);
  float s = fma_rn(square, -0x1.2d9302p-8f, 0x1.465e92p-4f);
  s = fma_rn(square, s, -0x1.4abbbap-1f);
  s = mul_rn(x, fma_rn(square, s, 0x1.921fb6p+0f));
  float c = fma_rn(square, 0x1.d9f7bcp-11f, -0x1.55c664p-6f);
  c = fma_rn(square, c, 0x1.03c1dep-2f);
  c = fma_rn(square, c, -0x1.3bd3ccp+0f);
  c = fma_rn(square, c, 1.0f);
  const bool is_odd = quarter & 0x40000000u;
  const UInt32 cosine = bits_of(is_odd ? s : c), sine = bits_of(is_odd ? c : s);
  return {float_of(cosine ^ ((quarter + 0x40000000u) & 0x80000000u)), float_of(sine ^ (quarter & 0x80000000u))};
}
#else
// Whether the table has a position; elements rotated by any other become NaN.
JITNORM_INLINE bool is_in_table(const Arguments& a, Int64 position) {
  return (UInt64)position < (UInt64)a.angles_extents[0];
}

JITNORM_INLINE const Angle* angles_at(const Arguments& a, Int64 position) {
  return a.angles + position * a.angles_strides[0];
}
#endif

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
