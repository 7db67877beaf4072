// FP8 with one scale for each row, found and stored.
struct Given {};
typedef AmaxBound CallScale;

JITNORM_INLINE Given given_of(const Arguments&) { return {}; }
JITNORM_INLINE CallScale call_scale_of(const Arguments& a, Given) { return amax_bound(a); }

JITNORM_INLINE float fp8_scale_of(const Arguments& a, Int64 row, CallScale bound, float row_amax, bool is_writer) {
  const float scale = fp8_scale_from(bounded(row_amax, bound));
  if (is_writer) a.row_scale[row] = scale;
  return scale;
}

JITNORM_INLINE float encode_scale_of(float scale) { return reciprocal_of_scale(scale); }
