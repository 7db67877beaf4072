// Stored scales in E4M3.
typedef UInt8 Scale;

JITNORM_INLINE float value_of_scale(Scale scale) { return value_of_e4m3(scale); }
