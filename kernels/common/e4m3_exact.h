// E4M3 without the instruction: exact, round to nearest even, saturating at 448, NaN to 0x7f, -0 kept. Without
// branches, so that the host's compiler can vectorize it.
JITNORM_INLINE UInt32 encode_e4m3(float v) {
  const UInt32 bits = bits_of(v);
  const UInt32 magnitude = bits & 0x7fffffffu;
  const UInt32 normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - (120u << 23)) >> 20;
  // Below 2^-6 codes are 2^-9 apart, the last place of 2^14.
  const UInt32 denormal = bits_of(add_rn(float_of(magnitude), 0x1p14f)) & 0xfu;
  const UInt32 finite = magnitude < 0x3c800000u ? denormal : normal;
  const UInt32 saturated = magnitude < 0x43e00000u ? finite : 0x7eu;  // 448 and above
  return magnitude > 0x7f800000u ? 0x7fu : saturated | ((bits >> 24) & 0x80u);
}
