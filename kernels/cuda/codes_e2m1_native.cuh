// E2M1 by the instruction of Blackwell's arch-specific targets: round to nearest even, saturating, NaN to code 7.
constexpr int kCodesPerWord = 8;
constexpr UInt32 kNaNCodes = 0x77777777u;
constexpr float kWordBound = 0.0f;  // no word is encoded at less cost

// Codes of y * factor in a word, the first in the lowest nibble.
template <bool kIsBounded = false>
JITNORM_INLINE UInt32 encode_word(const float* y, float factor) {
  float v[kCodesPerWord];
  JITNORM_UNROLL
  for (int i = 0; i < kCodesPerWord; ++i) v[i] = mul_rn(y[i], factor);
  UInt32 codes;
  asm("{\n"
      ".reg .b8 a, b, c, d;\n"
      "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 d, %8, %7;\n"
      "mov.b32 %0, {a, b, c, d};\n"
      "}"
      : "=r"(codes)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return codes;
}
