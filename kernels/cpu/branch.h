// The combine stage of branches that are gated or scaled, and the modulation of the norm of their sum with a residual.
#pragma once

#include "../common/branch.h"
#include "../common/finish.h"
#include "combine.h"

#ifdef JITNORM_BRANCH
// The float32 sum of a branch and a residual; it may also be stored, rounded to the input's type.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kBranch>(const Arguments& a, Int64 row, Tile* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* r = a.residual + row_offset(row, a.extents, a.residual_strides);
  const Input* g = a.branch_gate + row_offset(row, a.extents, a.branch_gate_strides);
  Input* sum = a.residual_out + row_offset(row, a.extents, a.residual_out_strides);
  const float scale = kHasBranchScale ? *a.branch_scale : 1.0f;
  for (int t = 0; t < kRowTiles; ++t) {
    Tile gate = {}, bias = {}, residual = {};
    load_tile(x, kHiddenSize, t, h[t]);
    if constexpr (kHasResidual) load_tile(r, kHiddenSize, t, residual);
    if constexpr (kHasBranchGate) load_tile(g, kHiddenSize, t, gate);
    if constexpr (kHasGateBias) load_tile(a.gate_bias, kHiddenSize, t, bias);
    for_each_value([&](int e, int k) {
      h[t].at[e][k] = branch_sum(h[t].at[e][k], branch_factor(gate.at[e][k], bias.at[e][k], scale), residual.at[e][k]);
    });
    clear_padding(t, h[t]);
    if constexpr (kStoresSum) store_tile(h[t], t, sum);
  }
}
#endif

#ifdef JITNORM_MODULATES
JITNORM_INLINE void modulate_tile(const Arguments& a, Int64 row, int t, Tile& y) {
  Tile scale, shift, scale_bias = {}, shift_bias = {};
  load_tile(a.modulation_scale + row_offset(row, a.extents, a.modulation_scale_strides), kHiddenSize, t, scale);
  load_tile(a.modulation_shift + row_offset(row, a.extents, a.modulation_shift_strides), kHiddenSize, t, shift);
  if constexpr (kHasModulationBias) {
    load_tile(a.scale_bias, kHiddenSize, t, scale_bias);
    load_tile(a.shift_bias, kHiddenSize, t, shift_bias);
  }
  for_each_value([&](int e, int k) {
    y.at[e][k] = modulated(y.at[e][k], scale.at[e][k], scale_bias.at[e][k], shift.at[e][k], shift_bias.at[e][k]);
  });
}
#endif
