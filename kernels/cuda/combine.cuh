// The combine stage: what a row is loaded from, and what its threads hold of it from one pass to the next. source.cuh
// selects one.
#pragma once

#include "../common/combine.h"
#include "../common/normalize.h"
#include "../common/rounding.h"
#include "../common/rows.h"
#include "../common/sandwich.h"
#include "chunks.cuh"

template <Combine>
struct RowSource;

// Only the input, held as it is loaded.
template <>
struct RowSource<Combine::kInput> {
  typedef InputChunk Held;

  const Input* input;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides)};
  }

  // Rows of codes may be longer than those of the input; a chunk past a row is zero.
  JITNORM_INLINE void load(Held& h, int index) const {
    const bool is_padding = kInputSize < kHiddenSize && index >= kInputSize / kChunkSize;
    load_chunk(h, input, is_padding ? kChunks : index);
  }

  template <typename Visit>
  JITNORM_INLINE void visit_loaded(Visit visit) const {
    visit(input);
  }

  // The same row in shared memory.
  JITNORM_INLINE RowSource staged(const Input* memory) const { return {memory}; }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};

struct RescaledChunk {
  InputChunk codes;
  float scale;
};

JITNORM_INLINE float value_of(const RescaledChunk& h, int i) { return rescaled(value_of(h.codes, i), h.scale); }
JITNORM_INLINE void forget_unpacked(RescaledChunk& h) { forget_unpacked(h.codes); }

// An FP8 tensor times a scale, held as it is loaded.
template <>
struct RowSource<Combine::kRescaled> {
  typedef RescaledChunk Held;

  const Input* input;
  float scale;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides), input_scale(a)};
  }

  // A chunk past a row is zero, whatever the scale.
  JITNORM_INLINE void load(Held& h, int index) const {
    const bool is_padding = kInputSize < kHiddenSize && index >= kInputSize / kChunkSize;
    load_chunk(h.codes, input, is_padding ? kChunks : index);
    h.scale = is_padding ? 0.0f : scale;
  }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};

// The float32 sum with a residual; it may also be stored, rounded to the input's type.
template <>
struct RowSource<Combine::kAdd> {
  typedef Chunk<float, 16> Held;

  const Input* input;
  const Input* residual;
  Input* sum;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides),
            a.residual + row_offset(row, a.extents, a.residual_strides),
            a.residual_out + row_offset(row, a.extents, a.residual_out_strides)};
  }

  JITNORM_INLINE void load(Held& h, int index) const {
    InputChunk x, r;
    load_chunk(x, input, index);
    load_chunk(r, residual, index);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.elements[i] = add_rn(value_of(x, i), value_of(r, i));
#ifdef JITNORM_ROUNDS
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.elements[i] = rounded_sum(h.elements[i]);
#endif
  }

  template <typename Visit>
  JITNORM_INLINE void visit_loaded(Visit visit) const {
    visit(input);
    visit(residual);
  }

  // The same row in shared memory, where the residual follows the input.
  JITNORM_INLINE RowSource staged(const Input* memory) const { return {memory, memory + kHiddenSize, sum}; }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const Held& h, int index) const {
    if constexpr (kStoresSum) store_rounded(sum, index, h.elements);
  }
};

#ifdef JITNORM_SANDWICH
// The input, the residual and the weight of their sum as they are loaded, and that sum.
struct SandwichChunk {
  InputChunk input, residual;
  WeightChunk weight;
  Chunk<float, 16> sum;
};

JITNORM_INLINE float value_of(const SandwichChunk& h, int i) { return h.sum.elements[i]; }
JITNORM_INLINE void forget_unpacked(SandwichChunk&) {}

template <>
struct RoomForFloats<SandwichChunk> {
  static constexpr bool kExists = true;
  JITNORM_FORCE_INLINE static float& at(SandwichChunk& h, int i) { return h.sum.elements[i]; }
};

// The float32 sum of the normalized input and a residual; it may also be stored, rounded to the input's type.
template <>
struct RowSource<Combine::kSandwich> {
  typedef SandwichChunk Held;

  const Input* input;
  const Input* residual;
  Input* sum;
  const Weight* weight;
  float rstd;  // of the input, once it is known

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides),
            a.residual + row_offset(row, a.extents, a.residual_strides),
            a.residual_out + row_offset(row, a.extents, a.residual_out_strides), a.input_weight, 0.0f};
  }

  // The terms of a chunk in the sum that comes first.
  JITNORM_INLINE static float sum_of(const Held& h) {
    return sum_over_chunk([&](float sum, int i) { return fma_rn(value_of(h.input, i), value_of(h.input, i), sum); });
  }

  JITNORM_INLINE void take_sum(const Arguments& a, Int64, float total) { rstd = reciprocal_rms(total, a.eps); }

  // A row that is not held is loaded again for each pass; in the first, it is not summed yet.
  JITNORM_INLINE void load(Held& h, int index) const {
    load_chunk(h.input, input, index);
    load_chunk(h.residual, residual, index);
    if constexpr (!kHoldsRow) {
      load_weight(h, index);
      make(h, index);
    }
  }

  JITNORM_INLINE void load_weight(Held& h, int index) const { load_chunk(h.weight, weight, index); }

  // What lies past the row is zero, whatever the statistic.
  JITNORM_INLINE void make(Held& h, int index) const {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      const float value =
          normalized_sum(value_of(h.input, i), rstd, factor_of(value_of(h.weight, i)), value_of(h.residual, i));
      h.sum.elements[i] = is_there(index, i) ? value : 0.0f;
    }
  }

  // Only once nobody will load the residual again: the sum may take its place.
  JITNORM_INLINE void store_sum(const Held& h, int index) const {
    if constexpr (kStoresSum) store_rounded(sum, index, h.sum.elements);
  }
};
#endif

// Hyper-connections (mHC): the sum of kStreams rows, each times its own factor.
template <>
struct RowSource<Combine::kMix> {
  typedef Chunk<float, 16> Held;

  const Input* input;
  float factors[kStreams];

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    RowSource source{a.input + row_offset(row, a.extents, a.input_strides)};
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) source.factors[s] = a.mix[row * kStreams + s];
    return source;
  }

  JITNORM_INLINE void load(Held& h, int index) const {
    InputChunk x[kStreams];
    JITNORM_UNROLL
    for (int s = 0; s < kStreams; ++s) load_chunk(x[s], input + s * kHiddenSize, index);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      float sum = 0.0f;
      JITNORM_UNROLL
      for (int s = 0; s < kStreams; ++s) sum = fma_rn(factors[s], value_of(x[s], i), sum);
      h.elements[i] = sum;
    }
  }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};
