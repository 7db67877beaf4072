// E4M3 without the instruction: exact, round to nearest even, saturating at 448, NaN to 0x7f, -0 kept.
JITNORM_INLINE UInt32 encode_e4m3(float v) {
  const UInt32 bits = bits_of(v);
  const UInt32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  const UInt32 sign = (bits >> 24) & 0x80u;
  if (magnitude >= 0x43e00000u) return sign | 0x7eu;  // 448 and above
  // Below 2^-6 codes are 2^-9 apart, the last place of 2^14.
  if (magnitude < 0x3c800000u) return sign | (bits_of(add_rn(float_of(magnitude), 0x1p14f)) & 0xfu);
  const UInt32 rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return sign | ((rounded - (120u << 23)) >> 20);
}
