// A global decode scale for the tensor.
JITNORM_INLINE float global_scale_at(const Arguments& a, Int64) { return *a.tensor_scale; }
JITNORM_INLINE float undo_global_scale(float value, float scale) { return mul_rn(value, scale); }
