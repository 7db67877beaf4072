// A global encode scale for the tensor.
JITNORM_INLINE float global_scale_at(const Arguments& a, Int64) { return *a.global_scale; }
JITNORM_INLINE float undo_global_scale(float value, float scale) { return div_rn(value, scale); }
