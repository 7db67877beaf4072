// A global scale for the tensor, given as the decode scale.
typedef float Given;
typedef GlobalScale CallScale;

JITNORM_INLINE Given given_of(const Arguments& a) { return *a.global_scale; }
JITNORM_INLINE CallScale call_scale_of(const Arguments& a, Given scale) {
  return prepare_global_scale(a, reciprocal_rn(scale));
}

JITNORM_INLINE GlobalScale global_scale_of(const Arguments&, Int64, CallScale global, float, bool) { return global; }
