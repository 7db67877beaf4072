// A global decode scale for each row.
JITNORM_INLINE float global_scale_at(const Arguments& a, Int64 row) { return a.row_scale[row]; }
JITNORM_INLINE float undo_global_scale(float value, float scale) { return mul_rn(value, scale); }
