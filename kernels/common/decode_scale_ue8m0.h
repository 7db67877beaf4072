// Stored scales in UE8M0: 2^(scale - 127), a denormal for 0, NaN for 255.
typedef UInt8 Scale;

JITNORM_INLINE float value_of_scale(Scale scale) {
  return float_of(scale == 0 ? 0x00400000u : scale == 255 ? 0x7fffffffu : (UInt32)scale << 23);
}
