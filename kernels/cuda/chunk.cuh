// A chunk in registers, viewed in accesses as wide as the addresses allow.
#pragma once

#include "../common/codes.h"
#include "../common/configuration.h"
#include "../common/intrinsics.h"

// A chunk in registers: its bytes, viewed in the width of an access.
template <typename T, int kAccessBytes>
union alignas(16) Chunk {
  static constexpr int kBytes = kChunkSize * (int)sizeof(T);
  T elements[kChunkSize];
  UInt32 words[kBytes / 4];
  float floats[kBytes / 4];
  typename Access<kAccessBytes>::Type accesses[kBytes / kAccessBytes];
};

// Where floats can replace what a lane holds of a chunk.
template <typename Held>
struct RoomForFloats {
  static constexpr bool kExists = false;
};
template <>
struct RoomForFloats<Chunk<float, 16>> {
  static constexpr bool kExists = true;
  JITNORM_FORCE_INLINE static float& at(Chunk<float, 16>& h, int i) { return h.elements[i]; }
};

template <typename Held>
JITNORM_INLINE float& float_in(Held& h, int i) {
  return RoomForFloats<Held>::at(h, i);
}

// Element i, widened. A bfloat16 is extracted from its word: on its own, the upper one of two takes one more
// instruction.
template <typename T, int kAccessBytes>
JITNORM_INLINE float value_of(const Chunk<T, kAccessBytes>& chunk, int i) {
  return to_float(chunk.elements[i]);
}

template <int kAccessBytes>
JITNORM_INLINE float value_of(const Chunk<BFloat16, kAccessBytes>& chunk, int i) {
  const UInt32 word = chunk.words[i / 2];
  return float_of(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}

// Two neighbours are widened together.
template <int kAccessBytes>
JITNORM_INLINE float value_of(const Chunk<Float8E4M3, kAccessBytes>& chunk, int i) {
  if constexpr (!kHasNativeFp8) return to_float(chunk.elements[i]);
  const UInt32 pair = widen_e4m3x2(chunk.words[i / 4] >> (i % 4 / 2 * 16));
  return to_float(Float16{(UInt16)(i % 2 == 0 ? pair : pair >> 16)});
}

// The sum with element i, or with its square.
template <typename Held>
JITNORM_INLINE float add_element(float sum, const Held& h, int i) {
  return add_rn(sum, value_of(h, i));
}

template <typename Held>
JITNORM_INLINE float add_square(float sum, const Held& h, int i) {
  const float v = value_of(h, i);
  return fma_rn(v, v, sum);
}

#ifdef JITNORM_MIXES_PRECISIONS
template <typename T, int kAccessBytes>
JITNORM_INLINE float add_element(float sum, const Chunk<T, kAccessBytes>& chunk, int i) {
  if constexpr (sizeof(T) == 2) {
    return add_widened(chunk.elements[i], sum);
  } else {
    return add_rn(sum, value_of(chunk, i));
  }
}

template <typename T, int kAccessBytes>
JITNORM_INLINE float add_square(float sum, const Chunk<T, kAccessBytes>& chunk, int i) {
  if constexpr (sizeof(T) == 2) {
    return add_square_widened(chunk.elements[i], sum);
  } else {
    return fma_rn(value_of(chunk, i), value_of(chunk, i), sum);
  }
}
#endif

// value_at(i), and with it those that an instruction packs.
template <typename ValueAt>
JITNORM_INLINE Packed packed_from(ValueAt value_at, int i) {
#ifdef JITNORM_PACKS_FLOATS
  return {value_at(i), value_at(i + 1)};
#else
  return value_at(i);
#endif
}

// The elements of a chunk, widened or computed.
template <typename Held>
JITNORM_INLINE void values_of(const Held& h, float (&values)[kChunkSize]) {
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) values[i] = value_of(h, i);
}

// Where the elements of a row end. Chunks of rows of two sizes, or of short ones, are loaded as addresses allow.
constexpr int kLoadedSize = kInputSize < kHiddenSize ? kInputSize : kHiddenSize;
#ifdef JITNORM_TWO_SIZES
constexpr bool kShiftsChunks = false;
#else
constexpr bool kShiftsChunks = kLoadedSize >= 2 * kChunkSize;
#endif

// Whether a chunk is loaded in accesses that are aligned, and shifted. With up to four narrower ones, which find the
// rest of their sectors in the L1 cache, it takes no longer.
template <typename T, int kAccessBytes>
constexpr bool kIsShifted = kShiftsChunks && Chunk<T, kAccessBytes>::kBytes > 4 * kAccessBytes;

typedef Chunk<Input, kInputAccessBytes> InputChunk;
typedef Chunk<Weight, kWeightAccessBytes> WeightChunk;

#ifdef JITNORM_UNWEIGHTED
JITNORM_INLINE float to_float(One) { return 1.0f; }

template <int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<One, kAccessBytes>&, const One*, int) {}

#endif
template <typename Word, int kCount>
JITNORM_INLINE void copy_words(Word (&to)[kCount], const void* from) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) to[i] = static_cast<const Word*>(from)[i];
}

template <typename Word, int kCount>
JITNORM_INLINE void copy_words(void* to, const Word (&from)[kCount]) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) static_cast<Word*>(to)[i] = from[i];
}

// Puts an access in the place of words.
template <int kWords>
JITNORM_INLINE void take_access(uint4 access, UInt32 (&words)[kWords], int first) {
  words[first] = access.x;
  words[first + 1] = access.y;
  words[first + 2] = access.z;
  words[first + 3] = access.w;
}

// In assembly, because NVRTC 13.0 takes three instructions, not two, for each word that is swapped by ?:.
JITNORM_INLINE UInt32 selected(bool is_first, UInt32 first, UInt32 second) {
  UInt32 result;
  asm("{\n.reg .pred is_first;\nsetp.ne.s32 is_first, %3, 0;\nselp.b32 %0, %1, %2, is_first;\n}"
      : "=r"(result)
      : "r"(first), "r"(second), "r"((int)is_first));
  return result;
}

JITNORM_INLINE void swap_if(bool is_swapped, UInt32& a, UInt32& b) {
  const UInt32 first = selected(is_swapped, b, a);
  b = selected(is_swapped, a, b);
  a = first;
}

// The order in which a lane loads the quarters of a float32 chunk: the i-th is quarter i ^ quarter_order(). In order,
// eight lanes would meet in two of eight banks, or with halves of chunks in four.
#ifdef JITNORM_SPLITS_CHUNKS
constexpr int kQuarterOrders = 2;
#else
constexpr int kQuarterOrders = 4;
#endif
JITNORM_INLINE int quarter_order() { return threadIdx.x / (8 / kQuarterOrders) % kQuarterOrders; }

// Brings the quarters of a chunk from the lane's order into that of the row, or back.
template <int kWords>
JITNORM_INLINE void reorder_quarters(UInt32 (&words)[kWords]) {
  JITNORM_UNROLL
  for (int bit = 1; bit < kQuarterOrders; bit *= 2) {
    const int distance = bit * (kWords / 4);
    JITNORM_UNROLL
    for (int i = 0; i < kWords; ++i) {
      if ((i & distance) == 0) swap_if(quarter_order() & bit, words[i], words[i + distance]);
    }
  }
}

// Makes the compiler unpack a 16-bit chunk again at its next use, instead of holding its floats until then: they take
// twice the registers. With 48 instead of 64, a multiprocessor has five blocks of 256 threads instead of four.
template <typename T, int kAccessBytes>
JITNORM_INLINE void forget_unpacked(Chunk<T, kAccessBytes>& chunk) {
  if constexpr (sizeof(T) < sizeof(float) && !kKeepsUnpacked) {
    JITNORM_UNROLL
    for (int i = 0; i < Chunk<T, kAccessBytes>::kBytes / 4; ++i) asm volatile("" : "+r"(chunk.words[i]));
  }
}

// Elements of half a chunk, where each lane has halves of two chunks.
constexpr int kHalf = kChunkSize / 2;

constexpr int kCodeWords = kChunkSize / kCodesPerWord;
constexpr int kCodeBytes = kCodeWords * 4;

union alignas(16) CodeChunk {
  UInt32 words[kCodeWords];
  typename Access<kCodesAccessBytes>::Type accesses[kCodeBytes / kCodesAccessBytes];
};
