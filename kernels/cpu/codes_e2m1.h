// Codes in E2M1: found one by one, stored two to a byte, the first in its lower half. No code of a NaN is ever kept:
// its block is filled with one code.
JITNORM_INLINE UInt32 encode_code(float y, float factor) {
  return (magnitude_code<false>(mul_rn(magnitude_of(y), factor)) - kCodeZero) | ((bits_of(y) >> 28) & 8u);
}

JITNORM_INLINE void store_codes(const UInt16* codes, int count, UInt8* to) {
  for (int i = 0; i < count / 2; ++i) to[i] = (UInt8)(codes[2 * i] | codes[2 * i + 1] << 4);
}
