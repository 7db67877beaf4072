// The fast path for blocks in the normal range, which are nearly all: their E2M1 codes, computed without the
// instruction, need neither saturation nor special cases.
#pragma once

#include "../common/block_scale.h"
#include "../common/fast_path.h"
#include "chunks.cuh"
#include "fast_codes.cuh"

constexpr int kE2M1Words = kChunkSize / kE2M1PerWord;

// Powers of two as scales save the lines of exact_e2m1 a product, so that they take no more instructions.
constexpr bool kConvertsToFp8 = kHasNativeFp8 && !kPowerOfTwoScales;
constexpr float kUnit = kScaleChoice == ScaleChoice::kFourOverSix ? kE2M1Unit : kConvertsToFp8 ? kFastUnit : 1.0f;

struct FastScale {
  UInt32 stored;
  float decode;  // decoded codes are values of E2M1 times decode * kUnit
  float encode;  // codes are those of y * encode / kUnit
};

template <ScaleFormat>
JITNORM_INLINE FastScale fast_scale_of(float amax, GlobalScale global);

// The scale of a block. Outside the normal range, amax * encode is outside, too. In E4M3, a scale of zero makes encode
// NaN, and so does a NaN; what fast_reciprocal cannot do becomes zero or NaN.
template <>
JITNORM_INLINE FastScale fast_scale_of<ScaleFormat::kE4M3>(float amax, GlobalScale global) {
  const UInt32 code = encode_e4m3(mul_rn(amax, global.reciprocal_max));
  float decode = mul_rn(float_of(code << 20), 0x1p120f / kUnit);
  if constexpr (kGlobalScale != GlobalScaleKind::kNone) {
    // A product that would be denormal may be normal in small units, and not be rounded alike.
    const bool is_usual = kUnit < 1.0f ? is_in_normal_range(global.inverse) : code < 0x80u;
    decode = is_usual ? mul_rn(decode, global.inverse) : 0.0f;
  }
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

  JITNORM_INLINE bool is_normal(float amax) const {
    return lies_within(mul_rn(amax, scale.encode), kUnsaturatedBound * kUnit);
  }

  // Encodes the block; the bits of its scale.
  JITNORM_INLINE UInt32 encode(CodeChunk& codes, const float (&y)[kChunkSize]) const {
    JITNORM_UNROLL
    for (int i = 0; i < kE2M1Words; ++i) {
      const float* values = y + kE2M1PerWord * i;
      codes.words[i] = kConvertsToFp8 ? fast_e2m1(values, scale.encode) : exact_e2m1<true>(values, scale.encode);
    }
    return scale.stored;
  }
};

// A magnitude rounded to a value of E2M1, both times kUnit; with kIsUpTo4, a magnitude that is rounded to 4 at most.
template <bool kIsUpTo4, typename Floats>
JITNORM_INLINE Floats round_value(Floats m) {
  if constexpr (!kIsUpTo4) return rounded_to_e2m1(m, kE2M1Unit);
  constexpr float kMoved = (0x1p23f - 2.0f) * kUnit;  // floats are 1/2 apart up to 2, then 1
  return add_rn(add_rn(m, Floats(kMoved)), Floats(-kMoved));
}

// The error of a block's values, which does not change if all signs are flipped; and, unless the target has an
// instruction for them, the codes without their signs.
template <bool kIsUpTo4>
JITNORM_INLINE float round_block(UInt32 (&words)[kE2M1Words], const float (&magnitudes)[kChunkSize],
                                 const FastScale& scale) {
  float error = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kE2M1Words; ++i) {
    float values[kE2M1PerWord];
    JITNORM_UNROLL
    for (int j = 0; j < kE2M1PerWord; j += kPacked) {
      const Packed m = packed_at(magnitudes + i * kE2M1PerWord + j), decode = scale.decode;
      const Packed value = round_value<kIsUpTo4>(mul_rn(m, Packed(scale.encode)));
      unpack(value, values + j);
      // Without a global scale the product is exact, so it need not be rounded separately.
      error = add_error(error, kGlobalScale != GlobalScaleKind::kNone ? add_rn(m, -mul_rn(value, decode))
                                                                      : fma_rn(-value, decode, m));
    }
    if constexpr (!kHasNativeE2M1) words[i] = codes_of_values(values);
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
    return lies_within(mul_rn(amax, six.encode), kUnsaturatedBound * kUnit) &&
           lies_within(mul_rn(amax, four.encode), 4.5f * kUnit);
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
      if constexpr (kHasNativeE2M1) {
        codes.words[i] = encode_word<Element::kE2M1>(y + i * kE2M1PerWord, is_four ? four.encode : six.encode);
        continue;
      }
      codes.words[i] = (is_four ? codes_of_four[i] : codes_of_six[i]) | fast_signs_of(y + i * kE2M1PerWord);
    }
    return is_four ? four.stored : six.stored;
  }
};
