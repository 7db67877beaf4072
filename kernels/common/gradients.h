// The gradients of a norm: of a row, and of the parameters, for which each segment sums its rows.
#pragma once

#include "arguments.h"
#include "normalize.h"

struct GradientStatistic {
  RowStatistic of_row;
  float mean_grad;  // of the gradient times the weight; only for layer normalization
  float slope;      // the mean of that gradient times the normalized row
};

// The statistic of layer normalization, which would take one sum after another, is given, because the norm has written
// it. RMSNorm's takes one sum in addition to those of the gradient.
constexpr bool kIsStatisticGiven = kCenters;

JITNORM_INLINE RowStatistic given_statistic(const Arguments& a, Int64 row) {
  if constexpr (kIsStatisticGiven) return {a.mean[row], a.rstd[row]};
  return {0.0f, 1.0f};
}

JITNORM_INLINE float normalized(float h, const RowStatistic& of) { return mul_rn(centered(h, of.mean), of.rstd); }

// `g` is the gradient of the norm's output times the weight, `n` the normalized value.
JITNORM_INLINE float input_gradient(float g, float n, const GradientStatistic& of) {
  return mul_rn(of.of_row.rstd, fma_rn(-n, of.slope, kCenters ? add_rn(g, -of.mean_grad) : g));
}

// From two sums over a row: of gradients times values, and of gradients or, if no statistic is given, of squares.
JITNORM_INLINE GradientStatistic gradient_statistic(RowStatistic of_row, float products, float other, float eps) {
  if constexpr (!kIsStatisticGiven) of_row.rstd = reciprocal_rms(other, eps);
  return {of_row, kCenters ? mean_of(other) : 0.0f, mean_of(mul_rn(products, of_row.rstd))};
}

// Adds a term to the second of these sums.
JITNORM_INLINE float add_other(float h, float g, float sum) {
  return kIsStatisticGiven ? add_rn(sum, g) : fma_rn(h, h, sum);
}

// The first row of the i-th pack of a segment.
JITNORM_INLINE Int64 row_of_pack(Int64 segment, Int64 i) { return (segment + i * kMostSegments) * kRowsOfPack; }

// Sums for the weight, followed by those for the bias.
constexpr int kParameterSums = kHasBias ? 2 : 1;

JITNORM_INLINE float* partial_sums(const Arguments& a, Int64 segment, int parameter) {
  return a.partials + (segment * kParameterSums + parameter) * kHiddenSize;
}

// Where `sum_rows` writes the sum of a column, which is for the weight or, after those, for the bias.
JITNORM_INLINE Output& sum_of_column(const Arguments& a, Int64 column) {
  return kHasBias && column >= kHiddenSize ? a.bias_out[column - kHiddenSize] : a.out[column];
}
