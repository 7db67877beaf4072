// The scale of the tensor.
JITNORM_INLINE float scale_at(const Arguments& a, Int64, int) { return value_of_scale(*a.scale); }
