// The gradients of norms on the host: one segment after another, whose rows are read once.
#pragma once

#include "../common/gradients.h"
#include "../common/rows.h"
#include "row_reduce.h"

struct GradientBuffers {
  Tile h[kRowTiles], grad[kRowTiles];  // a row, and the gradient of its norm
  Tile weight[kRowTiles];
  Tile sums[kParameterSums][kRowsOfPack][kRowTiles];
};

JITNORM_INLINE GradientBuffers& gradient_buffers() {
  static thread_local GradientBuffers buffers;
  GradientBuffers* address = &buffers;
  asm("" : "+r"(address));  // as in rows.h
  return *address;
}

// The gradient times the weight, of element e of chunk k of tile t.
JITNORM_INLINE float weighted_grad(const GradientBuffers& of, int t, int e, int k) {
  return mul_rn(of.grad[t].at[e][k], factor_of(of.weight[t].at[e][k]));
}

JITNORM_INLINE GradientStatistic gradient_statistic_of(const Arguments& a, Int64 row, const GradientBuffers& of) {
  const RowStatistic of_row = given_statistic(a, row);
  const float products = tree_sum([&](float sum, int t, int e, int k) {
    return fma_rn(weighted_grad(of, t, e, k), centered(of.h[t].at[e][k], of_row.mean), sum);
  });
  const float other = tree_sum(
      [&](float sum, int t, int e, int k) { return add_other(of.h[t].at[e][k], weighted_grad(of, t, e, k), sum); });
  return gradient_statistic(of_row, products, other, a.eps);
}

JITNORM_INLINE void process_gradient_row(const Arguments& a, Int64 row, int place, GradientBuffers& of) {
  const Input* h = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* grad = a.grad + row_offset(row, a.extents, a.grad_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    load_tile(h, kHiddenSize, t, of.h[t]);
    load_tile(grad, kHiddenSize, t, of.grad[t]);
  }
  const GradientStatistic statistic = gradient_statistic_of(a, row, of);
  Output* out = a.out + row_offset(row, a.extents, a.out_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    Tile result, other;
    if constexpr (kAddsGrad) {
      load_tile(a.residual + row_offset(row, a.extents, a.residual_strides), kHiddenSize, t, other);
    }
    for_each_value([&](int e, int k) {
      const float n = normalized(of.h[t].at[e][k], statistic.of_row);
      const float dx = input_gradient(weighted_grad(of, t, e, k), n, statistic);
      result.at[e][k] = kAddsGrad ? add_rn(dx, other.at[e][k]) : dx;
      if constexpr (!kSumsGradients) return;
      float& sum = of.sums[0][place][t].at[e][k];
      sum = fma_rn(of.grad[t].at[e][k], n, sum);
      if constexpr (kHasBias) {
        float& bias_sum = of.sums[kParameterSums - 1][place][t].at[e][k];
        bias_sum = add_rn(bias_sum, of.grad[t].at[e][k]);
      }
    });
    store_tile(result, t, out);
  }
}

#ifdef JITNORM_SUMS_GRADIENTS
// Folds the sums of the rows of a pack, and stores them.
JITNORM_INLINE void store_sums(const Arguments& a, Int64 segment, GradientBuffers& of) {
  for (int p = 0; p < kParameterSums; ++p) {
    float* to = partial_sums(a, segment, p);
    for (int t = 0; t < kRowTiles; ++t) {
      for (int half = kRowsOfPack / 2; half > 0; half /= 2) {
        for (int place = 0; place < half; ++place) {
          Tile &sum = of.sums[p][place][t], &other = of.sums[p][place + half][t];
          for_each_value([&](int e, int k) { sum.at[e][k] = add_rn(sum.at[e][k], other.at[e][k]); });
        }
      }
      store_tile(of.sums[p][0][t], t, to);
    }
  }
}
#else
// Sums are dropped.
JITNORM_INLINE void store_sums(const Arguments&, Int64, GradientBuffers&) {}
#endif

template <typename ArgumentsOf>
JITNORM_INLINE void process_segments(ArgumentsOf arguments_of, Int64 first, Int64 last) {
  const Arguments a = arguments_of();
  GradientBuffers& buffers = gradient_buffers();
  for (int t = 0; t < kRowTiles; ++t) load_tile(a.weight, kHiddenSize, t, buffers.weight[t]);
  for (Int64 number = first; number < last; ++number) {
    for (auto& of_pack : buffers.sums) {
      for (auto& of_row : of_pack) {
        for (Tile& tile : of_row) tile = Tile{};
      }
    }
    for (Int64 pack = 0; row_of_pack(number, pack) < a.rows; ++pack) {
      const Int64 first_row = row_of_pack(number, pack);
      for (int place = 0; place < kRowsOfPack && first_row + place < a.rows; ++place) {
        process_gradient_row(a, first_row + place, place, buffers);
      }
    }
    store_sums(a, number, buffers);
  }
}
