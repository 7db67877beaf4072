// The normalize stage: RMSNorm, layer normalization, or nothing if rows are only quantized; and the row statistic for
// it.
#pragma once

#include "configuration.h"
#include "fast_path.h"
#include "intrinsics.h"
#include "packed.h"
#include "rounding.h"

constexpr bool kCenters = kOp == Op::kLayerNorm;
constexpr bool kNormalizes = kCenters || kOp == Op::kRmsNorm;

struct RowStatistic {
  float mean;  // only for layer normalization
  float rstd;  // the reciprocal of the root mean square
};

// Dividing by a power of two equals multiplying by its reciprocal, bit for bit.
JITNORM_INLINE float mean_of(float sum) {
  return kHasPowerOfTwoSize ? mul_rn(sum, 1.0f / kHiddenSize) : div_rn(sum, (float)kHiddenSize);
}

JITNORM_INLINE float exact_reciprocal_rms(float sum_of_squares, float eps) {
  return reciprocal_rn(sqrt_rn(add_rn(mean_of(sum_of_squares), eps)));
}

JITNORM_INLINE float reciprocal_rms(float sum_of_squares, float eps) {
  if constexpr (!kTakesFastPath) return exact_reciprocal_rms(sum_of_squares, eps);
  constexpr float kSize = kHiddenSize;
  const float mean = kHasPowerOfTwoSize ? mean_of(sum_of_squares) : fast_quotient(sum_of_squares, kSize, 1.0f / kSize);
  const float square = add_rn(mean, eps);
  const bool is_fast = is_in_normal_range(square) && (kHasPowerOfTwoSize || is_in_normal_range(sum_of_squares));
  return is_fast ? fast_reciprocal_root(square) : exact_reciprocal_rms(sum_of_squares, eps);
}

#ifdef JITNORM_TWO_SIZES
// For a row of that size, up to kHiddenSize.
JITNORM_INLINE float reciprocal_rms_of(float sum_of_squares, int size, float eps) {
  if constexpr (kTakesFastPath) {
    const float mean = fast_quotient(sum_of_squares, (float)size, fast_reciprocal((float)size));
    const float square = add_rn(mean, eps);
    if (is_in_normal_range(sum_of_squares) && is_in_normal_range(square)) return fast_reciprocal_root(square);
  }
  return reciprocal_rn(sqrt_rn(add_rn(div_rn(sum_of_squares, (float)size), eps)));
}

#endif
template <typename Floats>
JITNORM_INLINE Floats centered(Floats h, float mean) {
  return kCenters ? add_rn(h, Floats(-mean)) : h;
}

// What a value is multiplied by: the weight w, or w + 1. A zero is not added to it, so -0 keeps its sign.
JITNORM_INLINE float factor_of(float w) { return kHasUnitBias ? add_rn(w, 1.0f) : w; }

#ifdef JITNORM_ROUNDS
// As below, rounded to the input's type: at each step, or only at the end, as for layer normalization and w + 1.
template <typename Floats>
JITNORM_INLINE Floats normalize(Floats h, RowStatistic statistic, Floats factor, Floats bias) {
  if constexpr (!kNormalizes) return h;
  const Floats scaled = mul_rn(centered(h, statistic.mean), Floats(statistic.rstd));
  const Floats y = mul_rn(kHasUnitBias ? scaled : rounded_step(scaled), factor);
  const Floats sum = kHasBias ? add_rn(kHasUnitBias ? y : rounded_step(y), bias) : y;
#ifdef JITNORM_FINISHES
  return rounded_step(sum);  // the next step is rounded, too
#else
#ifdef JITNORM_ROTATES
  return rounded_step(sum);  // its rotation is rounded, too
#else
  return kEncoding == Encoding::kValues ? sum : rounded(sum);  // values are rounded when they are stored
#endif
#endif
}
#else
// RMSNorm: (h * rstd) * factor. Layer normalization: ((h - mean) * rstd) * factor. Then + bias, if there is one.
template <typename Floats>
JITNORM_INLINE Floats normalize(Floats h, RowStatistic statistic, Floats factor, Floats bias) {
  if constexpr (!kNormalizes) return h;
  const Floats scaled = mul_rn(centered(h, statistic.mean), Floats(statistic.rstd));
#ifdef JITNORM_UNWEIGHTED
  return scaled;
#else
  const Floats y = mul_rn(scaled, factor);
  return kHasBias ? add_rn(y, bias) : y;
#endif
}
#endif
