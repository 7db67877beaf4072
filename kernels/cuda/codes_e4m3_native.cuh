// Codes in E4M3 of y * factor, four a word, the first in the lowest byte.
constexpr int kCodesPerWord = 4;
constexpr UInt32 kNaNCodes = 0x7f7f7f7fu;
constexpr float kWordBound = 0.0f;  // no word is encoded at less cost

template <bool kIsBounded = false>
JITNORM_INLINE UInt32 encode_word(const float* y, float factor) {
  return encode_e4m3x2(mul_rn(y[0], factor), mul_rn(y[1], factor)) |
         encode_e4m3x2(mul_rn(y[2], factor), mul_rn(y[3], factor)) << 16;
}
