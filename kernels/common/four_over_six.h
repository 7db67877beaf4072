// A block has two possible scales, amax / 6 and amax / 4: its codes are taken with the one that decodes nearer to it.
JITNORM_INLINE float squared_error(const float* y, const BlockScale& scale, float inverse) {
  const float decode = mul_rn(decode_e4m3(scale.stored), inverse);
  float error = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; i += kCodesPerWord) {
    const UInt32 codes = (encode_word(y + i, scale.encode) & scale.keep) | scale.fill;
    JITNORM_UNROLL
    for (int j = 0; j < kCodesPerWord; ++j) {
      const float difference = add_rn(y[i + j], -mul_rn(decode_e2m1(codes >> (4 * j)), decode));
      error = fma_rn(difference, difference, error);
    }
  }
  return error;
}

JITNORM_INLINE BlockScale choose_scale(const float* y, float amax, GlobalScale global) {
  const BlockScale six = scale_of(amax, global);
  const BlockScale four = scale_of(amax, {global.quarter, global.inverse, global.quarter});
  return squared_error(y, four, global.inverse) < squared_error(y, six, global.inverse) ? four : six;
}
