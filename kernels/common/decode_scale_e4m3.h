// Stored scales in E4M3.
typedef UInt8 Scale;

JITNORM_INLINE float value_of_scale(Scale scale) { return to_float(Float8E4M3{scale}); }
