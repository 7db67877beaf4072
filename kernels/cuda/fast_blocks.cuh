// The fast path of blocks in the normal range, which are nearly all: their codes in E2M1, found without the
// instruction, need neither saturation nor those of special blocks.
#pragma once

#include "../common/block_scale.h"
#include "../common/fast_path.h"
#include "code_chunk.cuh"

constexpr bool kHasFastBlocks = kElement == Element::kE2M1 && !kHasNativeE2M1;
constexpr int kE2M1Words = kChunkSize / kE2M1PerWord;

struct FastScale {
  UInt32 stored;
  float decode;  // what codes are multiplied by to decode them
  float encode;  // codes are those of y * encode
};

// The scale of a block. Outside the normal range, amax * encode is outside, too. In E4M3, a scale of zero makes encode
// NaN, and so does a NaN; what fast_reciprocal cannot do becomes zero or NaN.
JITNORM_INLINE FastScale fast_e4m3_scale_of(float amax, GlobalScale global) {
  const UInt32 code = encode_e4m3(mul_rn(amax, global.reciprocal_max));
  float decode = mul_rn(float_of(code << 20), 0x1p120f);
  if (kGlobalScale != GlobalScaleKind::kNone) decode = code < 0x80u ? mul_rn(decode, global.inverse) : 0.0f;
  return {code, decode, fast_reciprocal(decode)};
}

// In UE8M0, encode is no positive float for scales that are too large.
JITNORM_INLINE FastScale fast_ue8m0_scale_of(float amax) {
  const UInt32 exponent = scale_exponent(amax);
  return {exponent, 0.0f, float_of((254u - exponent) << 23)};
}

JITNORM_INLINE FastScale fast_scale_of(float amax, GlobalScale global) {
  if constexpr (kScaleFormat == ScaleFormat::kUE8M0) return fast_ue8m0_scale_of(amax);
  return fast_e4m3_scale_of(amax, global);
}

// The possible scales of a block: amax / 6 and, with kFourOverSix, amax / 4.
struct FastBlock {
  FastScale six, four;
};

JITNORM_INLINE FastBlock fast_block(float amax, GlobalScale global) {
  if constexpr (!kFourOverSix) return {fast_scale_of(amax, global)};
  return {fast_scale_of(amax, global), fast_scale_of(amax, {global.quarter, global.inverse, global.quarter})};
}

// Above zero and below the bound; NaN is neither.
JITNORM_INLINE bool lies_within(float a, float bound) { return bits_of(a) - 1u < bits_of(bound) - 1u; }

// Below 5, magnitudes with the scale of four do not get the code of 6.
JITNORM_INLINE bool takes_fast_path(float amax, const FastBlock& block) {
  const bool is_within = lies_within(mul_rn(amax, block.six.encode), kUnsaturatedBound);
  if constexpr (!kFourOverSix) return is_within;
  return is_within && lies_within(mul_rn(amax, block.four.encode), 5.0f);
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

// Codes without their signs, and the error that they make: with both signs turned, its square stays.
template <bool kIsUpTo4>
JITNORM_INLINE float round_block(UInt32 (&words)[kE2M1Words], const float (&magnitudes)[kChunkSize],
                                 const FastScale& scale) {
  float error = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1Words; ++i) {
    UInt32 rounded[kE2M1PerWord];
    JITNORM_UNROLL
    for (int j = 0; j < kE2M1PerWord; ++j) {
      const float m = magnitudes[i * kE2M1PerWord + j];
      float value;
      rounded[j] = round_magnitude<kIsUpTo4>(mul_rn(m, scale.encode), value);
      // Without a global scale the product is exact, so that it need not be rounded by itself.
      const float difference = kGlobalScale != GlobalScaleKind::kNone ? add_rn(m, -mul_rn(value, scale.decode))
                                                                      : fma_rn(-value, scale.decode, m);
      error = fma_rn(difference, difference, error);
    }
    words[i] = pack_codes(rounded);
  }
  return error;
}

// Takes the better of both scales; its bits.
JITNORM_INLINE UInt32 encode_four_over_six(CodeChunk& codes, const float (&y)[kChunkSize], const FastBlock& block) {
  float magnitudes[kChunkSize];
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) magnitudes[i] = magnitude_of(y[i]);
  UInt32 six[kE2M1Words], four[kE2M1Words];
  const float error_of_six = round_block<false>(six, magnitudes, block.six);
  const bool is_four = round_block<true>(four, magnitudes, block.four) < error_of_six;
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1Words; ++i) {
    codes.words[i] = (is_four ? four[i] : six[i]) | signs_of(y + i * kE2M1PerWord);
  }
  return is_four ? block.four.stored : block.six.stored;
}

// Encodes a block in the normal range; the bits of its scale.
JITNORM_INLINE UInt32 encode_fast_block(CodeChunk& codes, const float (&y)[kChunkSize], const FastBlock& block) {
  if constexpr (kFourOverSix) return encode_four_over_six(codes, y, block);
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1Words; ++i) codes.words[i] = encode_e2m1<true>(y + kE2M1PerWord * i, block.six.encode);
  return block.six.stored;
}
