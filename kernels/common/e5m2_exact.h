// E5M2 without the instruction: exact, round to nearest even, saturating at 57344, NaN to 0x7f, -0 kept.
JITNORM_INLINE UInt32 encode_e5m2(float v) {
  const UInt32 bits = bits_of(v);
  const UInt32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  const UInt32 sign = (bits >> 24) & 0x80u;
  if (magnitude >= 0x47600000u) return sign | 0x7bu;  // 57344 and above
  // Below 2^-14 codes are 2^-16 apart, the last place of 2^7.
  if (magnitude < 0x38800000u) return sign | (bits_of(add_rn(float_of(magnitude), 0x1p7f)) & 0x7u);
  const UInt32 rounded = magnitude + 0xfffffu + ((magnitude >> 21) & 1u);
  return sign | ((rounded - (112u << 23)) >> 21);
}
