// A global scale for the tensor, given as the decode scale.
JITNORM_INLINE float global_scale_of(const Arguments& a, Int64, float, bool) { return reciprocal_rn(*a.global_scale); }
