// A block has one possible scale.
template <typename Block>
JITNORM_INLINE BlockScale choose_scale(const Block&, float amax, GlobalScale global) {
  return scale_of(amax, global);
}
