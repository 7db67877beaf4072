// Codes in FP8: found and stored one a byte.
JITNORM_INLINE void store_codes(const UInt16* codes, int count, UInt8* to) {
  for (int i = 0; i < count; ++i) to[i] = (UInt8)codes[i];
}
