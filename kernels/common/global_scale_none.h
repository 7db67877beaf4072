// No global scale.
struct Given {};
typedef GlobalScale CallScale;

JITNORM_INLINE Given given_of(const Arguments&) { return {}; }
JITNORM_INLINE CallScale call_scale_of(const Arguments& a, Given) { return prepare_global_scale(a, 1.0f); }

JITNORM_INLINE GlobalScale global_scale_of(const Arguments&, Int64, CallScale global, float, bool) { return global; }
