// Block scales in UE8M0, powers of two (MXFP4, MXFP8). There is no global scale.
typedef UInt8 Scale;

struct GlobalScale {};

JITNORM_INLINE GlobalScale prepare_global_scale(const Arguments&, float) { return {}; }

JITNORM_INLINE BlockScale scale_of(float amax, GlobalScale) {
  const UInt32 unbounded = scale_exponent(amax);
  const UInt32 exponent = unbounded < 254u ? unbounded : 254u;
  const float encode = float_of(exponent < 254u ? (254u - exponent) << 23 : 0x00400000u);  // 2^(127 - exponent)
  const bool is_nan = amax != amax;
  return block_scale(is_nan ? 0xffu : exponent, encode, amax == 0.0f, is_nan);
}
