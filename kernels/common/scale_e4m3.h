// Block scales in E4M3, multiplied by a global encode scale (NVFP4).
typedef UInt8 Scale;

struct GlobalScale {
  float reciprocal_max;  // global scale / 6
  float inverse;         // 1 / global scale
  float quarter;         // global scale / 4
};

JITNORM_INLINE GlobalScale prepare_global_scale(const Arguments&, float global_scale) {
  // A reciprocal of 1 is not known to the compiler: spelt out, three instructions a block fall away.
  if (!kHasGlobalScale) return {kReciprocalMax, 1.0f, 0.25f};
  return {mul_rn(global_scale, kReciprocalMax), computed(reciprocal_rn(global_scale)), mul_rn(global_scale, 0.25f)};
}

JITNORM_INLINE BlockScale scale_of(float amax, GlobalScale global) {
  const UInt32 code = encode_e4m3(mul_rn(amax, global.reciprocal_max));
  const float encode = reciprocal_rn(mul_rn(decode_e4m3(code), global.inverse));
  return block_scale(code, min_or_limit(encode, kMaxFloat), (code & 0x7fu) == 0, (code & 0x7fu) == 0x7fu);
}
