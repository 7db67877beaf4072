// The gradients of a norm: of a row, and the rows that each segment sums up for those of the parameters.
#pragma once

#include "arguments.h"
#include "normalize.h"

struct GradientStatistic {
  float mean;       // of layer normalization alone, as is the next
  float mean_grad;  // of the gradient times the weight
  float rstd;
  float slope;  // the mean of that gradient times the normalized row
};

JITNORM_INLINE float normalized(float h, float mean, float rstd) { return mul_rn(centered(h, mean), rstd); }

// `g` is the gradient of the norm's output times the weight, `n` the normalized value.
JITNORM_INLINE float input_gradient(float g, float n, const GradientStatistic& of) {
  return mul_rn(of.rstd, fma_rn(-n, of.slope, kCenters ? add_rn(g, -of.mean_grad) : g));
}

// The sums over a row: of squares, of gradients times values, and of gradients.
JITNORM_INLINE GradientStatistic gradient_statistic(float mean, float squares, float products, float grads, float eps) {
  const float rstd = reciprocal_rms(squares, eps);
  return {mean, kCenters ? mean_of(grads) : 0.0f, rstd, mean_of(mul_rn(products, rstd))};
}

// The first row of the i-th pack of a segment.
JITNORM_INLINE Int64 row_of_pack(Int64 segment, Int64 i) { return (segment + i * kMostSegments) * kRowsOfPack; }

// Sums for the weight and, behind them, for the bias.
constexpr int kParameterSums = kHasBias ? 2 : 1;

JITNORM_INLINE float* partial_sums(const Arguments& a, Int64 segment, int parameter) {
  return a.partials + (segment * kParameterSums + parameter) * kHiddenSize;
}

// Where `sum_rows` writes the sum of a column, which is for the weight or, behind those, for the bias.
JITNORM_INLINE Output& sum_of_column(const Arguments& a, Int64 column) {
  return kHasBias && column >= kHiddenSize ? a.bias_out[column - kHiddenSize] : a.out[column];
}
