// Stored scales in float32.
typedef float Scale;

JITNORM_INLINE float value_of_scale(Scale scale) { return scale; }
