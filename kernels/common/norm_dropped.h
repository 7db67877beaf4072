// y itself is not kept.
template <typename... Ignored>
JITNORM_INLINE void store_norm(const Ignored&...) {}
