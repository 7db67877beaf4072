// Hyper-connections (mHC) after a layer: mixes the streams, and adds the layer's weighted output to each.
#pragma once

#include "arguments.h"
#include "intrinsics.h"
#include "rows.h"

#ifdef JITNORM_MIXES_LAYER
constexpr int kStreamItems = (kHiddenSize + kStreamColumns - 1) / kStreamColumns;  // of a row, the last may have fewer

struct StreamChunk {
  alignas(16) Input elements[kStreamColumns];
};

JITNORM_INLINE void load_stream(StreamChunk& chunk, const Input* from, int index) {
  if (index < kHiddenSize / kStreamColumns) {
    load_array<kInputAccessBytes>(chunk.elements, from);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kStreamColumns; ++i) chunk.elements[i] = i < kHiddenSize % kStreamColumns ? from[i] : Input{};
}

JITNORM_INLINE void store_stream(Output* to, const StreamChunk& chunk, int index) {
  if (index < kHiddenSize / kStreamColumns) {
    store_array<kOutAccessBytes>(to, chunk.elements);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kStreamColumns; ++i) {
    if (i < kHiddenSize % kStreamColumns) to[i] = chunk.elements[i];
  }
}

// An item is a few columns of all streams of a row; `residual` is what the layer gives.
JITNORM_INLINE void mhc_post_item(const Arguments& a, Int64 item) {
  const Int64 row = item / kStreamItems;
  const int index = (int)(item % kStreamItems), first = index * kStreamColumns;
  const Input* streams = a.input + row_offset(row, a.extents, a.input_strides) + first;
  Output* out = a.out + row_offset(row, a.extents, a.out_strides) + first;
  const float *layer_mix = a.layer_mix + row * kStreams, *mix = a.mix + row * kStreams * kStreams;
  StreamChunk layer, of[kStreams];
  load_stream(layer, a.residual + row_offset(row, a.extents, a.residual_strides) + first, index);
  JITNORM_UNROLL
  for (int s = 0; s < kStreams; ++s) load_stream(of[s], streams + s * kHiddenSize, index);
  float values[kStreams][kStreamColumns], of_layer[kStreamColumns];
  JITNORM_LANES
  for (int i = 0; i < kStreamColumns; ++i) of_layer[i] = to_float(layer.elements[i]);
  JITNORM_UNROLL
  for (int s = 0; s < kStreams; ++s) {
    JITNORM_LANES
    for (int i = 0; i < kStreamColumns; ++i) values[s][i] = to_float(of[s].elements[i]);
  }
  JITNORM_UNROLL
  for (int to = 0; to < kStreams; ++to) {
    StreamChunk mixed;
    JITNORM_LANES
    for (int i = 0; i < kStreamColumns; ++i) {
      float sum = mul_rn(layer_mix[to], of_layer[i]);
      JITNORM_UNROLL
      for (int s = 0; s < kStreams; ++s) sum = fma_rn(mix[s * kStreams + to], values[s][i], sum);
      round_to(sum, mixed.elements[i]);
    }
    store_stream(out + to * kHiddenSize, mixed, index);
  }
}
#endif
