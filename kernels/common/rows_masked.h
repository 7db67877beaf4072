// The rows that the mask counts are processed; all others are left alone, and so is the padding.
JITNORM_INLINE Int64 counted_rows(const Arguments& a) {
  const Int64 count = *a.mask;
  return count < 0 ? 0 : count < a.rows ? count : a.rows;
}

JITNORM_INLINE bool is_processed(const Arguments& a, Int64 row) { return row < counted_rows(a); }
JITNORM_INLINE bool is_padding(const Arguments&, Int64) { return false; }

// Rows that a launch visits for a row set.
JITNORM_INLINE Int64 visited_rows(Int64 rows) { return rows; }
