// Codes in E5M2, four a word, the first in the lowest byte.
constexpr int kCodesPerWord = 4;
constexpr UInt32 kNaNCodes = 0x7f7f7f7fu;

JITNORM_INLINE UInt32 encode_word(const float* v) {
  return encode_e5m2x2(v[0], v[1]) | encode_e5m2x2(v[2], v[3]) << 16;
}
