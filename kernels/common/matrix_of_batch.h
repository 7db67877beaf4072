// The matrix of a batch that a row belongs to.
JITNORM_INLINE Int64 matrix_of(const Arguments& a, Int64 row) { return row / a.rows; }
