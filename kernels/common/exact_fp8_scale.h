// The scale of FP8 that is found, and its reciprocal.
JITNORM_INLINE float fp8_scale_from(float amax) { return exact_fp8_scale(amax); }
JITNORM_INLINE float reciprocal_of_scale(float scale) { return reciprocal_rn(scale); }
