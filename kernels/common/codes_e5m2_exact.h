// Codes in E5M2 of y * factor, four a word, the first in the lowest byte.
constexpr int kCodesPerWord = 4;
constexpr UInt32 kNaNCodes = 0x7f7f7f7fu;
constexpr float kWordBound = 0.0f;  // no word is encoded at less cost

JITNORM_INLINE UInt32 encode_code(float y, float factor) { return encode_e5m2(mul_rn(y, factor)); }

template <bool kIsBounded = false>
JITNORM_INLINE UInt32 encode_word(const float* y, float factor) {
  return encode_code(y[0], factor) | encode_code(y[1], factor) << 8 | encode_code(y[2], factor) << 16 |
         encode_code(y[3], factor) << 24;
}
