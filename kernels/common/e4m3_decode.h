// The value of an E4M3 code that is no NaN.
JITNORM_INLINE float decode_e4m3(UInt32 code) {
  // As the top bits of a float the exponent is 120 too small; the product also normalizes denormals, exactly.
  return mul_rn(float_of(((code & 0x80u) << 24) | ((code & 0x7fu) << 20)), 0x1p120f);
}
