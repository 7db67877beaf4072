// An amax that becomes a scale of FP8 has an upper bound, given; NaN stays.
typedef float AmaxBound;

JITNORM_INLINE AmaxBound amax_bound(const Arguments& a) { return *a.scale_ub; }
JITNORM_INLINE float bounded(float amax, AmaxBound bound) { return amax > bound ? bound : amax; }
