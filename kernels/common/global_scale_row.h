// A global encode scale for each row, found; its inverse is stored.
struct Given {};
struct CallScale {};

JITNORM_INLINE Given given_of(const Arguments&) { return {}; }
JITNORM_INLINE CallScale call_scale_of(const Arguments&, Given) { return {}; }

JITNORM_INLINE GlobalScale global_scale_of(const Arguments& a, Int64 row, CallScale, float row_amax, bool is_writer) {
  const float scale = global_scale_from(row_amax);
  if (is_writer) a.row_scale[row] = decode_scale_from(row_amax, scale);
  return prepare_global_scale(a, scale);
}
