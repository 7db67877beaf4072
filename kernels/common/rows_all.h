// All rows are processed, and the padding behind them is written.
JITNORM_INLINE bool is_processed(const Arguments& a, Int64 row) { return row < a.rows; }
JITNORM_INLINE bool is_padding(const Arguments& a, Int64 row) { return row >= a.rows && row < padded_rows(a.rows); }

// Rows that a launch visits for a row set.
JITNORM_INLINE Int64 visited_rows(Int64 rows) { return padded_rows(rows); }
