// Codes in E2M1, two to a byte, the first in its lower half. No code of a NaN is ever kept: its block is filled with
// one code.
//
// As integers, the two lines of which a code is the lowest keep their order, and NaN lies above them: GCC sees their
// minimum, for which that of floats may become a comparison and a choice.
JITNORM_INLINE UInt32 lower_of(UInt32 a, UInt32 b) { return a < b ? a : b; }

JITNORM_INLINE UInt32 lane_magnitude_code(float m) {
  const UInt32 below_4 = bits_of(add_rn(m, 0x1p23f - 2.0f));
  const UInt32 above_4 = bits_of(fma_rn(m, 0.5f, 0x1p23f));
  return lower_of(lower_of(below_4, above_4), bits_of(0x1p23f + 3.0f));
}

JITNORM_INLINE UInt32 encode_lane_word(const float* y, float factor) {
  UInt32 magnitudes = 0, signs = 0;
  JITNORM_UNROLL
  for (int i = kCodesPerWord - 1; i >= 0; --i) {
    const float m = mul_rn(magnitude_of(y[i]), factor);
    magnitudes = magnitudes * 16u + lane_magnitude_code(m);
    signs = (signs << 4) | (m == m ? bits_of(y[i]) >> 28 : 0u);  // infinity times zero is NaN, whose code is positive
  }
  return (magnitudes - kCodeZero * 0x11111111u) | (signs & 0x88888888u);
}
