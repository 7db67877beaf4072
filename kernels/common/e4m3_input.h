// Inputs in E4M3, which a float holds exactly.
JITNORM_INLINE float to_float(Float8E4M3 x) {
  return (x.bits & 0x7fu) == 0x7fu ? float_of(0x7fffffffu) : decode_e4m3(x.bits);
}
