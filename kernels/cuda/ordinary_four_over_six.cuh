// A block with two possible scales, both ordinary: its codes are found once for each, and so are the values that they
// stand for, by magnitude: with both signs turned, an error's square stays.
struct OrdinaryBlock {
  OrdinaryScale six, four;
};

JITNORM_INLINE OrdinaryBlock ordinary_block(float amax, GlobalScale global) {
  return {ordinary_scale_of(amax, global), ordinary_scale_of(amax, {global.quarter, global.inverse, global.quarter})};
}

// Below 5, magnitudes with the scale of four do not get the code of 6.
JITNORM_INLINE bool is_ordinary(float amax, const OrdinaryBlock& block) {
  return lies_within(mul_rn(amax, block.six.encode), kWordBound) && lies_within(mul_rn(amax, block.four.encode), 5.0f);
}

// kCodeZero + the code of a magnitude, and the value of that code. Up to 4, the rounded sum is the value, moved.
template <bool kIsUpTo4>
JITNORM_INLINE UInt32 round_magnitude(float m, float& value) {
  if constexpr (kIsUpTo4) {
    const float sum = min_or_limit(add_rn(m, 0x1p23f - 2.0f), 0x1p23f + 2.0f);
    value = add_rn(sum, 2.0f - 0x1p23f);
    return bits_of(sum);
  } else {
    const UInt32 code = magnitude_code<true>(m);
    // As the top bits of a float, a code's exponent is 126 too small; the product also normalizes the denormal.
    value = mul_rn(float_of(code * 0x400000u - kCodeZero * 0x400000u), 0x1p126f);
    return code;
  }
}

// Codes without their signs, and the error that they make.
template <bool kIsUpTo4>
JITNORM_INLINE float round_block(UInt32 (&words)[kCodeWords], const float (&magnitudes)[kChunkSize],
                                 const OrdinaryScale& scale) {
  float error = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    UInt32 rounded[kCodesPerWord];
    JITNORM_UNROLL
    for (int j = 0; j < kCodesPerWord; ++j) {
      const float m = magnitudes[i * kCodesPerWord + j];
      float value;
      rounded[j] = round_magnitude<kIsUpTo4>(mul_rn(m, scale.encode), value);
      // Without a global scale the product is exact, so that it need not be rounded by itself.
      const float difference =
          kHasGlobalScale ? add_rn(m, -mul_rn(value, scale.decode)) : fma_rn(-value, scale.decode, m);
      error = fma_rn(difference, difference, error);
    }
    words[i] = pack_codes(rounded);
  }
  return error;
}

// Encodes it; the bits of its scale.
JITNORM_INLINE UInt32 encode_ordinary_block(CodeChunk& codes, const float (&y)[kChunkSize],
                                            const OrdinaryBlock& block) {
  float magnitudes[kChunkSize];
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) magnitudes[i] = magnitude_of(y[i]);
  UInt32 six[kCodeWords], four[kCodeWords];
  const float error_of_six = round_block<false>(six, magnitudes, block.six);
  const bool is_four = round_block<true>(four, magnitudes, block.four) < error_of_six;
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) {
    codes.words[i] = (is_four ? four[i] : six[i]) | signs_of(y + i * kCodesPerWord);
  }
  return is_four ? block.four.stored : block.six.stored;
}
