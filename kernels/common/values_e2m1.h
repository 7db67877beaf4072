// Values of codes in E2M1, two a byte, the first in the low nibble.
constexpr int kCodeBits = 4;

JITNORM_INLINE float value_of_code(UInt32 code) {
  // As the top bits of a float the exponent is 126 too small; the product also normalizes the denormal, exactly.
  return mul_rn(float_of((code & 8u) << 28 | (code & 7u) << 22), 0x1p126f);
}
