// Rows that go through an activation: what they are loaded from, and the step after a norm.
#pragma once

#include "../common/finish.h"
#include "combine.cuh"
#include "fast_activation.cuh"
#include "rounded_gelu.cuh"

// A row whose activations are visited once, held as it was loaded. The activations are computed when a chunk is
// encoded, after all chunks have been requested; if they came earlier, the compiler would compute the first before it
// loads the last.
constexpr bool kIsVisitedOnce = !kNormalizes && !kNeedsRowAmax && sizeof(Input) < sizeof(float);

template <typename Loaded, bool kIsHeld>
struct LoadedOrFloats {
  typedef Loaded Type;
};
template <typename Loaded>
struct LoadedOrFloats<Loaded, false> {
  typedef Chunk<float, 16> Type;
};

// A chunk's gates and values, in two chunks: one in each, or alternating within both.
struct GatesAndValues {
  static constexpr bool kIsRun = kGateColumns % kChunkSize == 0 || kGateColumns == kHiddenSize;
  static constexpr bool kAlternates = !kIsRun && kChunkSize % kGateColumns == 0;

  InputChunk chunks[2];

  JITNORM_INLINE static int first_at(int i) { return kAlternates ? gate_position(i) : i; }
  JITNORM_INLINE static int second_at(int i) { return kAlternates ? gate_position(i) + kGateColumns : kChunkSize + i; }
  JITNORM_INLINE float at(int place) const { return value_of(chunks[place / kChunkSize], place % kChunkSize); }
  JITNORM_INLINE void put(int place, Input x) { chunks[place / kChunkSize].elements[place % kChunkSize] = x; }

  JITNORM_INLINE void load(const Input* row, int index) {
    if constexpr (kIsRun) {
      const Input* from = kGateColumns == kHiddenSize ? row : row + index * kChunkSize / kGateColumns * kGateColumns;
      load_chunk(chunks[0], from, index);
      load_chunk(chunks[1], from + kGateColumns, index);
    } else if (kAlternates && is_there(index, kChunkSize - 1)) {
      copy_words(chunks[0].accesses, row + index * 2 * kChunkSize);
      copy_words(chunks[1].accesses, row + (index * 2 + 1) * kChunkSize);
    } else {
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        const bool has_both = is_there(index, i);
        const Input* from = row + gate_position(index * kChunkSize + i);
        put(first_at(i), has_both ? from[0] : Input{});
        put(second_at(i), has_both ? from[kGateColumns] : Input{});
      }
    }
  }
};

#ifdef JITNORM_VALUES_FIRST
JITNORM_INLINE float gate_at(const GatesAndValues& h, int i) { return h.at(h.second_at(i)); }
JITNORM_INLINE float multiplier_at(const GatesAndValues& h, int i) { return h.at(h.first_at(i)); }
#else
JITNORM_INLINE float gate_at(const GatesAndValues& h, int i) { return h.at(h.first_at(i)); }
JITNORM_INLINE float multiplier_at(const GatesAndValues& h, int i) { return h.at(h.second_at(i)); }
#endif
JITNORM_INLINE float value_of(const GatesAndValues& h, int i) { return gated(gate_at(h, i), multiplier_at(h, i)); }
JITNORM_INLINE void forget_unpacked(GatesAndValues&) {}

JITNORM_INLINE void values_of(const GatesAndValues& h, float (&values)[kChunkSize]) {
  if constexpr (GatesAndValues::kIsRun) {
#ifdef JITNORM_VALUES_FIRST
    constexpr int kGates = 1;
#else
    constexpr int kGates = 0;
#endif
    activate(h.chunks[kGates], values);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kPacked) {
      const Packed v = packed_from([&](int k) { return value_of(h.chunks[1 - kGates], k); }, i);
      unpack(gated_by(packed_at(values + i), v), values + i);
    }
  } else {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kPacked) {
      const Packed gate = packed_from([&](int k) { return gate_at(h, k); }, i);
      unpack(gated(gate, packed_from([&](int k) { return multiplier_at(h, k); }, i)), values + i);
    }
  }
}

// The activations of gates, times values, of an input with both.
template <>
struct RowSource<Combine::kGated> {
  typedef LoadedOrFloats<GatesAndValues, kIsVisitedOnce>::Type Held;

  const Input* input;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides)};
  }

  template <typename Visit>
  JITNORM_INLINE void visit_loaded(Visit visit) const {
    visit(input);
  }

  JITNORM_INLINE void load(GatesAndValues& h, int index) const { h.load(input, index); }

  JITNORM_INLINE void load(Chunk<float, 16>& h, int index) const {
    GatesAndValues loaded;
    loaded.load(input, index);
    values_of(loaded, h.elements);
  }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};

#ifdef JITNORM_FINISHES
#ifdef JITNORM_MODULATES
#else
// The step after a norm: its activation.
template <typename Held>
JITNORM_INLINE void finish(const Held&, float (&y)[kChunkSize]) {
  activate(y, y);
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) y[i] = rounded_finish(y[i]);
}
#endif
#endif

#ifdef JITNORM_GATES
typedef Chunk<Input, kGateAccessBytes> GateChunk;

// Values and the gates of their norm, both held as they are loaded, unless the gates give way to their activations.
struct GatedChunk {
  InputChunk values;
  GateChunk gates;
#ifdef JITNORM_ACTIVATES_EARLY
  float activations[kChunkSize];
#endif
};

JITNORM_INLINE float value_of(const GatedChunk& h, int i) { return value_of(h.values, i); }
#ifdef JITNORM_ACTIVATES_EARLY
JITNORM_INLINE void forget_unpacked(GatedChunk& h) { forget_unpacked(h.values); }
#else
JITNORM_INLINE void forget_unpacked(GatedChunk& h) {
  forget_unpacked(h.values);
  forget_unpacked(h.gates);
}
#endif

template <>
struct RoomForFloats<GatedChunk> {
  static constexpr bool kExists = true;
#ifdef JITNORM_ACTIVATES_EARLY
  JITNORM_FORCE_INLINE static float& at(GatedChunk& h, int i) { return h.activations[i]; }
#else
  JITNORM_FORCE_INLINE static float& at(GatedChunk& h, int i) {
    constexpr int kOfValues = InputChunk::kBytes / 4;
    return i < kOfValues ? h.values.floats[i] : h.gates.floats[i - kOfValues];
  }
#endif
};

#ifdef JITNORM_FINISHES
// Its product with the activations of gates.
JITNORM_INLINE void multiply(const float (&activations)[kChunkSize], float (&y)[kChunkSize]) {
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; i += kPacked) {
    unpack(rounded_finish(mul_rn(packed_at(y + i), packed_at(activations + i))), y + i);
  }
}

#ifdef JITNORM_ACTIVATES_EARLY
JITNORM_INLINE void finish(const GatedChunk& h, float (&y)[kChunkSize]) { multiply(h.activations, y); }
#else
JITNORM_INLINE void finish(const GatedChunk& h, float (&y)[kChunkSize]) {
  float activations[kChunkSize];
  activate(h.gates, activations);
  multiply(activations, y);
}
#endif
#endif

// The input, times the activations of gates.
template <>
struct RowSource<Combine::kScaled> {
  typedef Chunk<float, 16> Held;

  const Input* input;
  const Input* gate;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides), a.gate + row_offset(row, a.extents, a.gate_strides)};
  }

  JITNORM_INLINE void load(Held& h, int index) const {
    InputChunk x;
    GateChunk g;
    load_chunk(x, input, index);
    load_chunk(g, gate, index);
    activate(g, h.elements);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) h.elements[i] = mul_rn(value_of(x, i), h.elements[i]);
  }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};

// The input together with gates.
template <>
struct RowSource<Combine::kBeside> {
  typedef GatedChunk Held;

  const Input* input;
  const Input* gate;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides), a.gate + row_offset(row, a.extents, a.gate_strides)};
  }

#ifdef JITNORM_ACTIVATES_EARLY
  JITNORM_INLINE void load(Held& h, int index) const {
    load_chunk(h.gates, gate, index);
    load_chunk(h.values, input, index);
  }
#else
  JITNORM_INLINE void load(Held& h, int index) const {
    load_chunk(h.values, input, index);
    load_chunk(h.gates, gate, index);
  }
#endif

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};
#endif

struct ActivatedChunk {
  InputChunk input;
};

// The activations of bfloat16 are only rounded to bfloat16.
constexpr bool kOnlyRounds = kIsVisitedOnce && kEncoding == Encoding::kValues && is_bfloat16(Input{});

template <typename Floats>
JITNORM_INLINE Floats activation_of(Floats x) {
  return kOnlyRounds ? ActivationToRound<kActivation>::at(x) : activated_value(x);
}

JITNORM_INLINE float value_of(const ActivatedChunk& h, int i) { return activation_of(value_of(h.input, i)); }

#ifdef JITNORM_TABULATES
JITNORM_INLINE void values_of(const ActivatedChunk& h, float (&values)[kChunkSize]) {
  activate(h.input, values);
  JITNORM_UNROLL
  for (float& value : values) value = rounded_activation(value);
}
#else
JITNORM_INLINE void values_of(const ActivatedChunk& h, float (&values)[kChunkSize]) {
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; i += kPacked) {
    unpack(activation_of(packed_from([&](int k) { return value_of(h.input, k); }, i)), values + i);
  }
}
#endif

JITNORM_INLINE void forget_unpacked(ActivatedChunk&) {}

// The activation of the input; that of the zeros past it is zero.
template <>
struct RowSource<Combine::kActivated> {
  typedef LoadedOrFloats<ActivatedChunk, kIsVisitedOnce>::Type Held;

  const Input* input;

  JITNORM_INLINE static RowSource of(const Arguments& a, Int64 row) {
    return {a.input + row_offset(row, a.extents, a.input_strides)};
  }

  template <typename Visit>
  JITNORM_INLINE void visit_loaded(Visit visit) const {
    visit(input);
  }

  JITNORM_INLINE void load(ActivatedChunk& h, int index) const { load_chunk(h.input, input, index); }

  JITNORM_INLINE void load(Chunk<float, 16>& h, int index) const {
    ActivatedChunk loaded;
    load(loaded, index);
    values_of(loaded, h.elements);
  }

  JITNORM_INLINE void store_sum(const Held&, int) const {}
};
