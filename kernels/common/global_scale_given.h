// A global encode scale for the tensor, given.
typedef float Given;
typedef GlobalScale CallScale;

JITNORM_INLINE Given given_of(const Arguments& a) { return *a.global_scale; }
JITNORM_INLINE CallScale call_scale_of(const Arguments& a, Given scale) { return prepare_global_scale(a, scale); }

JITNORM_INLINE GlobalScale global_scale_of(const Arguments&, Int64, CallScale global, float, bool) { return global; }
