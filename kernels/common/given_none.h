// An encode stage that takes no scale.
struct Given {};
struct CallScale {};

JITNORM_INLINE Given given_of(const Arguments&) { return {}; }
JITNORM_INLINE CallScale call_scale_of(const Arguments&, Given) { return {}; }
