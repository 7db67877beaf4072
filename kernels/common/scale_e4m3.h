// Block scales in E4M3, multiplied by a global encode scale (NVFP4).
struct GlobalScale {
  float sixth;    // global scale / 6
  float inverse;  // 1 / global scale
};

JITNORM_INLINE GlobalScale prepare_global_scale(float global_scale) {
  return {mul_rn(global_scale, float_of(kRoundedSixth)), reciprocal_rn(global_scale)};
}

JITNORM_INLINE float decode_e4m3(UInt32 code) {
  // As the top bits of a float the exponent is 120 too small; the product also normalizes denormals, exactly.
  return mul_rn(float_of(((code & 0x80u) << 24) | ((code & 0x7fu) << 20)), 0x1p120f);
}

JITNORM_INLINE BlockScale scale_of(float amax, GlobalScale global) {
  const float wanted = mul_rn(amax, global.sixth);
  const UInt32 byte = encode_e4m3(wanted);
  const float encode = reciprocal_rn(mul_rn(decode_e4m3(byte), global.inverse));
  const bool is_zero = (byte & 0x7fu) == 0, is_nan = (byte & 0x7fu) == 0x7fu;
  return {byte, min_or_limit(encode, 0x1.fffffep127f), is_zero || is_nan ? 0u : ~0u, is_nan ? kNaNCodes : 0u};
}
