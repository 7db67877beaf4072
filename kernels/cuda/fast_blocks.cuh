// The fast path for blocks in the normal range, which are nearly all: their E2M1 codes, computed without the
// instruction, need neither saturation nor special cases.
#pragma once

#include "../common/block_scale.h"
#include "../common/fast_path.h"
#include "chunks.cuh"

constexpr int kE2M1Words = kChunkSize / kE2M1PerWord;

struct FastScale {
  UInt32 stored;
  float decode;  // what codes are multiplied by to decode them
  float encode;  // codes are those of y * encode
};

template <ScaleFormat>
JITNORM_INLINE FastScale fast_scale_of(float amax, GlobalScale global);

// The scale of a block. Outside the normal range, amax * encode is outside, too. In E4M3, a scale of zero makes encode
// NaN, and so does a NaN; what fast_reciprocal cannot do becomes zero or NaN.
template <>
JITNORM_INLINE FastScale fast_scale_of<ScaleFormat::kE4M3>(float amax, GlobalScale global) {
  const UInt32 code = encode_e4m3(mul_rn(amax, global.reciprocal_max));
  float decode = mul_rn(float_of(code << 20), 0x1p120f);
  if (kGlobalScale != GlobalScaleKind::kNone) decode = code < 0x80u ? mul_rn(decode, global.inverse) : 0.0f;
  return {code, decode, fast_reciprocal(decode)};
}

// In UE8M0, encode is not a positive float if the scale is too large.
template <>
JITNORM_INLINE FastScale fast_scale_of<ScaleFormat::kUE8M0>(float amax, GlobalScale) {
  const UInt32 exponent = scale_exponent(amax);
  return {exponent, 0.0f, float_of((254u - exponent) << 23)};
}

// Whether it is above zero and below the bound; false for NaN.
JITNORM_INLINE bool lies_within(float a, float bound) { return bits_of(a) - 1u < bits_of(bound) - 1u; }

// The scales that a block may have, and how it is encoded if it is in the normal range.
template <ScaleChoice>
struct FastBlock;

template <>
struct FastBlock<ScaleChoice::kOnly> {
  FastScale scale;

  JITNORM_INLINE static FastBlock of(float amax, GlobalScale global) {
    return {fast_scale_of<kScaleFormat>(amax, global)};
  }

  JITNORM_INLINE bool is_normal(float amax) const { return lies_within(mul_rn(amax, scale.encode), kUnsaturatedBound); }

  // Encodes the block; the bits of its scale.
  JITNORM_INLINE UInt32 encode(CodeChunk& codes, const float (&y)[kChunkSize]) const {
    JITNORM_UNROLL
    for (int i = 0; i < kE2M1Words; ++i) codes.words[i] = encode_e2m1<true>(y + kE2M1PerWord * i, scale.encode);
    return scale.stored;
  }
};

// kCodeZero + the code of a magnitude, and the value of that code. Below 4.5, the rounded sum is the value, moved.
template <bool kIsUpTo4>
JITNORM_INLINE UInt32 round_magnitude(float m, float& value) {
  if constexpr (kIsUpTo4) {
    const float sum = add_rn(m, 0x1p23f - 2.0f);
    value = add_rn(sum, 2.0f - 0x1p23f);
    return bits_of(sum);
  } else {
    const UInt32 code = magnitude_code<true>(m);
    // As the top bits of a float, a code's exponent is 126 too small; the product also normalizes the denormal.
    value = mul_rn(float_of(code * 0x400000u - kCodeZero * 0x400000u), 0x1p126f);
    return code;
  }
}

// Codes without their signs, and their error, which does not change if both signs are flipped.
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
      // Without a global scale the product is exact, so it need not be rounded separately.
      const float difference = kGlobalScale != GlobalScaleKind::kNone ? add_rn(m, -mul_rn(value, scale.decode))
                                                                      : fma_rn(-value, scale.decode, m);
      error = add_error(error, difference);
    }
    words[i] = pack_codes(rounded);
  }
  return error;
}

// Encodes with the scale that gives the smaller error.
template <>
struct FastBlock<ScaleChoice::kFourOverSix> {
  FastScale six, four;

  JITNORM_INLINE static FastBlock of(float amax, GlobalScale global) {
    return {fast_scale_of<kScaleFormat>(amax, global),
            fast_scale_of<kScaleFormat>(amax, {global.quarter, global.inverse, global.quarter})};
  }

  // Below 4.5, magnitudes with the scale of four are rounded to 4 at most. Those with a scale that is normal in E4M3
  // are: it is off by a sixteenth.
  JITNORM_INLINE bool is_normal(float amax) const {
    return lies_within(mul_rn(amax, six.encode), kUnsaturatedBound) && lies_within(mul_rn(amax, four.encode), 4.5f);
  }

  JITNORM_INLINE UInt32 encode(CodeChunk& codes, const float (&y)[kChunkSize]) const {
    float magnitudes[kChunkSize];
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) magnitudes[i] = magnitude_of(y[i]);
    UInt32 codes_of_six[kE2M1Words], codes_of_four[kE2M1Words];
    const float error_of_six = round_block<false>(codes_of_six, magnitudes, six);
    const bool is_four = round_block<true>(codes_of_four, magnitudes, four) < error_of_six;
    JITNORM_UNROLL
    for (int i = 0; i < kE2M1Words; ++i) {
      codes.words[i] = (is_four ? codes_of_four[i] : codes_of_six[i]) | signs_of(y + i * kE2M1PerWord);
    }
    return is_four ? four.stored : six.stored;
  }
};
