// There is one matrix.
JITNORM_INLINE Int64 matrix_of(const Arguments&, Int64) { return 0; }
