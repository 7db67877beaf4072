// E5M2 without the instruction: exact, round to nearest even, saturating at 57344, NaN to 0x7f, -0 kept. Without
// branches, so that the host's compiler can vectorize it.
JITNORM_INLINE UInt32 encode_e5m2(float v) {
  const UInt32 bits = bits_of(v);
  const UInt32 magnitude = bits & 0x7fffffffu;
  const UInt32 normal = (magnitude + 0xfffffu + ((magnitude >> 21) & 1u) - (112u << 23)) >> 21;
  // Below 2^-14 codes are 2^-16 apart, the last place of 2^7.
  const UInt32 denormal = bits_of(add_rn(float_of(magnitude), 0x1p7f)) & 0x7u;
  const UInt32 finite = magnitude < 0x38800000u ? denormal : normal;
  const UInt32 saturated = magnitude < 0x47600000u ? finite : 0x7bu;  // 57344 and above
  return magnitude > 0x7f800000u ? 0x7fu : saturated | ((bits >> 24) & 0x80u);
}
