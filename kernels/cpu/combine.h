// The combine stage: a row from memory to the cache, as floats.
#pragma once

#include "../common/activation.h"
#include "../common/combine.h"
#include "../common/rounding.h"
#include "../common/rows.h"
#include "tile.h"

template <Combine>
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, Tile* h);

// The loaded row, followed by zeros if rows of codes are longer.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kInput>(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
#ifdef JITNORM_TWO_SIZES
  for (int t = 0; t < kRowTiles; ++t) load_tile(from, a.size, t, h[t]);
#else
  for (int t = 0; t < kRowTiles; ++t) load_tile(from, kInputSize, t, h[t]);
#endif
}

// The loaded row times the scale of an FP8 tensor, followed by zeros, whatever the scale.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kRescaled>(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  const float scale = input_scale(a);
  for (int t = 0; t < kRowTiles; ++t) {
    load_tile(from, kInputSize, t, h[t]);
    const int left = kInputSize - t * kTileSize;
    for_each_value(
        [&](int e, int k) { h[t].at[e][k] = k * kChunkSize + e < left ? rescaled(h[t].at[e][k], scale) : 0.0f; });
  }
}

// The float32 sum with a residual; it may also be stored, rounded to the input's type.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kAdd>(const Arguments& a, Int64 row, Tile* h) {
  const Input* x = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* r = a.residual + row_offset(row, a.extents, a.residual_strides);
  Input* sum = a.residual_out + row_offset(row, a.extents, a.residual_out_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    Tile residual;
    load_tile(x, kHiddenSize, t, h[t]);
    load_tile(r, kHiddenSize, t, residual);
    for_each_value([&](int e, int k) { h[t].at[e][k] = add_rn(h[t].at[e][k], residual.at[e][k]); });
#ifdef JITNORM_ROUNDS
    for_each_value([&](int e, int k) { h[t].at[e][k] = rounded_sum(h[t].at[e][k]); });
#endif
    if constexpr (kStoresSum) store_tile(h[t], t, sum);
  }
}

// The activations of gates, times values, of an input with both.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kGated>(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    float values[kTileSize] = {};
    const int left = kHiddenSize - t * kTileSize;
    for (int i = 0; i < (left < kTileSize ? left : kTileSize); ++i) {
      const Input* gate = from + gate_position(t * kTileSize + i);
#ifdef JITNORM_VALUES_FIRST
      values[i] = gated(to_float(gate[kGateColumns]), to_float(gate[0]));
#else
      values[i] = gated(to_float(gate[0]), to_float(gate[kGateColumns]));
#endif
    }
    load_whole_tile(values, h[t]);
  }
}

#ifdef JITNORM_GATES
// The input, times the activations of gates, followed by zeros.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kScaled>(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  const Input* gate = a.gate + row_offset(row, a.extents, a.gate_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    Tile gates;
    load_tile(from, kHiddenSize, t, h[t]);
    load_tile(gate, kHiddenSize, t, gates);
    for_each_value(
        [&](int e, int k) { h[t].at[e][k] = mul_rn(h[t].at[e][k], activated<kActivation>(gates.at[e][k])); });
  }
}

// Only the input: gates are loaded when its norm needs them.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kBeside>(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int t = 0; t < kRowTiles; ++t) load_tile(from, kHiddenSize, t, h[t]);
}
#endif

// The activation of the input; that of the zeros after it is zero.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kActivated>(const Arguments& a, Int64 row, Tile* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int t = 0; t < kRowTiles; ++t) {
    load_tile(from, kHiddenSize, t, h[t]);
    for_each_value([&](int e, int k) { h[t].at[e][k] = activated_value(h[t].at[e][k]); });
  }
}

// Hyper-connections (mHC): the sum of kStreams rows, each times its own factor.
JITNORM_INLINE void mix_streams(const Input* x, const float* factors, Tile* h) {
  for (int t = 0; t < kRowTiles; ++t) {
    h[t] = Tile{};
    for (int s = 0; s < kStreams; ++s) {
      Tile stream;
      load_tile(x + (Int64)s * kHiddenSize, kHiddenSize, t, stream);
      for_each_value([&](int e, int k) { h[t].at[e][k] = fma_rn(factors[s], stream.at[e][k], h[t].at[e][k]); });
    }
    clear_padding(t, h[t]);
  }
}

// That sum, with given factors.
template <>
JITNORM_FORCE_INLINE void load_row<Combine::kMix>(const Arguments& a, Int64 row, Tile* h) {
  mix_streams(a.input + row_offset(row, a.extents, a.input_strides), a.mix + row * kStreams, h);
}
