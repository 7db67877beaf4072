// The value of the E2M1 code in the lowest four bits.
JITNORM_INLINE float decode_e2m1(UInt32 code) {
  // As the top bits of a float the exponent is 126 too small; the product also normalizes the denormal, exactly.
  return mul_rn(float_of(((code & 8u) << 28) | ((code & 7u) << 22)), 0x1p126f);
}
