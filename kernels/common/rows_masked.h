// The rows that the mask counts are processed; all others are left alone, and so is the padding.
JITNORM_INLINE bool is_processed(const Arguments& a, Int64 row) { return row < a.rows && row < *a.mask; }
JITNORM_INLINE bool is_padding(const Arguments&, Int64) { return false; }

// Rows that a launch visits for a row set.
JITNORM_INLINE Int64 visited_rows(Int64 rows) { return rows; }
