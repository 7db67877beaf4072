// The value of an E4M3 code.
JITNORM_INLINE float value_of_e4m3(UInt32 code) {
  return (code & 0x7fu) == 0x7fu ? float_of(0x7fffffffu) : decode_e4m3(code);
}
