// E2M1 without the instruction: exact, round to nearest even, saturating at 6, NaN to +6 (code 7), -0 kept.
//
// |v| lies in a binade [2^k, 2^(k+1)), k raised to 0 for the denormals, whose codes are 2^(k-1) apart. Adding 2^(k+22)
// leaves exactly that step as the sum's last place, so the addition itself rounds |v| to a whole number of steps, to
// even. The code is that number plus two for each binade above the first.
JITNORM_INLINE UInt32 encode_e2m1(float v) {
  const UInt32 sign = (bits_of(with_positive_nan(v)) >> 28) & 8u;
  const float magnitude = min_or_limit(float_of(bits_of(v) & 0x7fffffffu), 6.0f);
  const UInt32 exponent = bits_of(magnitude) & 0x7f800000u;
  const UInt32 binade = exponent > 0x3f800000u ? exponent : 0x3f800000u;
  const UInt32 steps = bits_of(fma_rn(float_of(binade), 0x1p22f, magnitude));
  // binade >> 22 is twice the biased exponent: 254 for k = 0, and -254 = 2 modulo 8.
  return sign | ((steps + (binade >> 22) + 2u) & 7u);
}

constexpr int kCodesPerWord = 8;
constexpr UInt32 kNaNCodes = 0x77777777u;

// Codes in a word, the first in the lowest nibble.
JITNORM_INLINE UInt32 encode_word(const float* v) {
  UInt32 codes = 0;
  JITNORM_UNROLL
  for (int i = 0; i < kCodesPerWord; ++i) codes |= encode_e2m1(v[i]) << (4 * i);
  return codes;
}
