// No global scale.
JITNORM_INLINE float global_scale_at(const Arguments&, Int64) { return 1.0f; }
JITNORM_INLINE float undo_global_scale(float value, float) { return value; }
