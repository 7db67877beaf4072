// The scale of a row.
JITNORM_INLINE float scale_at(const Arguments& a, Int64 row, int) { return value_of_scale(a.row_scale[row]); }
