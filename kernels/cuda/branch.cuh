// The combine stage of branches that are gated or scaled, together with the modulation of the norm of their sum with a
// residual.
#pragma once

#include "../common/branch.h"
#include "combine.cuh"

#ifdef JITNORM_BRANCH
// Where float32 parameters are as wide as the accesses of the input allow.
typedef Chunk<float, (kInputAccessBytes > 4 ? kInputAccessBytes : 4)> BranchBias;

#ifdef JITNORM_MODULATES
// The sum, and the modulation of its norm as it is loaded.
struct BranchChunk {
  Chunk<float, 16> sum;
  InputChunk scale, shift;
};

JITNORM_INLINE void forget_unpacked(BranchChunk& h) {
  forget_unpacked(h.scale);
  forget_unpacked(h.shift);
}
#else
struct BranchChunk {
  Chunk<float, 16> sum;
};

JITNORM_INLINE void forget_unpacked(BranchChunk&) {}
#endif

JITNORM_INLINE float value_of(const BranchChunk& h, int i) { return h.sum.elements[i]; }

template <>
struct RoomForFloats<BranchChunk> {
  static constexpr bool kExists = true;
  JITNORM_FORCE_INLINE static float& at(BranchChunk& h, int i) { return h.sum.elements[i]; }
};

// The float32 sum of a branch and a residual; it may also be stored, rounded to the input's type.
template <>
struct RowSource<Combine::kBranch> {
  typedef BranchChunk Held;

  const Input* input;
  const Input* residual;
  Input* sum;
  const Input* gate;
  const float* gate_bias;
  float scale;
#ifdef JITNORM_MODULATES
  const Input* modulation_scale;
  const Input* modulation_shift;
#endif

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    RowSource source{};
    source.input = a.input + row_offset(row, a.extents, a.input_strides);
    source.residual = a.residual + row_offset(row, a.extents, a.residual_strides);
    source.sum = a.residual_out + row_offset(row, a.extents, a.residual_out_strides);
    source.gate = a.branch_gate + row_offset(row, a.extents, a.branch_gate_strides);
    source.gate_bias = a.gate_bias;
    source.scale = kHasBranchScale ? *a.branch_scale : 1.0f;
#ifdef JITNORM_MODULATES
    source.modulation_scale = a.modulation_scale + row_offset(row, a.extents, a.modulation_scale_strides);
    source.modulation_shift = a.modulation_shift + row_offset(row, a.extents, a.modulation_shift_strides);
#endif
    return source;
  }

  JITNORM_INLINE void load(Held& h, int index) const {
    InputChunk x, r = {}, g = {};
    BranchBias bias = {};
    load_chunk(x, input, index);
    if constexpr (kHasResidual) load_chunk(r, residual, index);
    if constexpr (kHasBranchGate) load_chunk(g, gate, index);
    if constexpr (kHasGateBias) load_parameter(bias, gate_bias, index);
#ifdef JITNORM_MODULATES
    load_chunk(h.scale, modulation_scale, index);
    load_chunk(h.shift, modulation_shift, index);
#endif
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const float factor = branch_factor(value_of(g, i), value_of(bias, i), scale);
      h.sum.elements[i] = branch_sum(value_of(x, i), factor, value_of(r, i));
    }
  }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const Held& h, int index) const {
    if constexpr (kStoresSum) store_rounded(sum, index, h.sum.elements);
  }
};
#endif
