// The scale of a block that is a power of two, if the block is ordinary; if not, amax * encode is not, either: encode
// is no positive float for scales that are too large.
JITNORM_INLINE OrdinaryScale ordinary_scale_of(float amax, GlobalScale) {
  const UInt32 exponent = scale_exponent(amax);
  return {exponent, 0.0f, float_of((254u - exponent) << 23)};
}
