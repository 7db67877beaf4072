// FP8 with one scale for the tensor, given: a divisor.
JITNORM_INLINE float fp8_scale_of(const Arguments& a, Int64, float, bool) { return *a.scale; }
