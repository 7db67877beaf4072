// E2M1 without the instruction: exact, round to nearest even, saturating at 6, NaN to +6 (code 7), -0 kept.
//
// As a function of the magnitude m, the code of a value that has one lies on the lowest of three lines: 2m up to 2,
// m + 2 up to 4, m / 2 + 4 above. Added to 2^23, where floats are 1 apart, each line is rounded to a whole code, a tie
// to the even one, in the one rounding of its addition; rounding keeps the order, so the lowest stays the lowest.
template <bool kIsBounded>
JITNORM_INLINE UInt32 magnitude_code(float m) {
  const float below_2 = fma_rn(m, 2.0f, 0x1p23f);
  const float below_4 = add_rn(m, 0x1p23f + 2.0f);
  const float above_4 = fma_rn(m, 0.5f, 0x1p23f + 4.0f);
  return bits_of(
      min_or_limit(min_or_limit(below_2, below_4), kIsBounded ? above_4 : min_or_limit(above_4, 0x1p23f + 7.0f)));
}

constexpr int kCodesPerWord = 8;
constexpr UInt32 kNaNCodes = 0x77777777u;

// Magnitudes below this need no saturation.
constexpr float kWordBound = 7.0f;

// Codes of y * factor in a word, the first in the lowest nibble; the factor is positive. With kIsBounded, the products'
// magnitudes are known to be below kWordBound.
template <bool kIsBounded = false>
JITNORM_INLINE UInt32 encode_word(const float* y, float factor) {
  UInt32 magnitudes = 0, signs = 0;
  JITNORM_UNROLL
  for (int i = kCodesPerWord - 1; i >= 0; --i) {
    magnitudes = magnitudes * 16u + magnitude_code<kIsBounded>(mul_rn(magnitude_of(y[i]), factor));
    signs = (signs << 4) | (bits_of(with_positive_nan(y[i])) >> 28);
  }
  // What the exponents of 2^23 have added up to is taken off again.
  return (magnitudes - 0xfb000000u) | (signs & 0x88888888u);
}
