// Chunks of a row between memory and registers, in accesses as wide as the addresses allow.
#pragma once

#include "../common/codes.h"
#include "../common/configuration.h"
#include "../common/intrinsics.h"

// The number of whole chunks in a row; the next one may hold a few elements, later ones none.
constexpr int kWholeChunks = kHiddenSize / kChunkSize;

template <int kBytes>
struct Access;
template <>
struct Access<16> {
  typedef uint4 Type;
};
template <>
struct Access<8> {
  typedef uint2 Type;
};
template <>
struct Access<4> {
  typedef UInt32 Type;
};
template <>
struct Access<2> {
  typedef UInt16 Type;
};
template <>
struct Access<1> {
  typedef UInt8 Type;
};

// A chunk in registers: its bytes, viewed in the width of an access.
template <typename T, int kAccessBytes>
union alignas(16) Chunk {
  static constexpr int kBytes = kChunkSize * (int)sizeof(T);
  T elements[kChunkSize];
  UInt32 words[kBytes / 4];
  typename Access<kAccessBytes>::Type accesses[kBytes / kAccessBytes];
};

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

// The elements of a chunk, widened or computed.
template <typename Held>
JITNORM_INLINE void values_of(const Held& h, float (&values)[kChunkSize]) {
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) values[i] = value_of(h, i);
}

typedef Chunk<Input, kInputAccessBytes> InputChunk;
typedef Chunk<Weight, kWeightAccessBytes> WeightChunk;

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

// Element i of chunk `index` belongs to the row. Compare, do not clamp a length: ptxas 13.0 took the predicate of a
// clamping minimum (VIMNMX.RELU) for "the chunk is whole", and partial chunks read past their row.
JITNORM_INLINE bool is_in_row(int index, int i) { return kHasPartialChunk && index * kChunkSize + i < kHiddenSize; }

// Chunk `index` of the row at `row`; elements past the row are zero.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  const T* from = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(chunk.accesses, from);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = is_in_row(index, i) ? from[i] : T{};
}

#ifdef JITNORM_UNWEIGHTED
JITNORM_INLINE float to_float(One) { return 1.0f; }

template <int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<One, kAccessBytes>&, const One*, int) {}

#endif
// In assembly, because NVRTC 13.0 takes three instructions, not two, for each word that is swapped by ?:.
JITNORM_INLINE UInt32 selected(bool is_first, UInt32 first, UInt32 second) {
  UInt32 result;
  asm("{\n.reg .pred is_first;\nsetp.ne.s32 is_first, %3, 0;\nselp.b32 %0, %1, %2, is_first;\n}"
      : "=r"(result)
      : "r"(first), "r"(second), "r"((int)is_first));
  return result;
}

JITNORM_INLINE uint4 selected(bool is_first, uint4 first, uint4 second) {
  return {selected(is_first, first.x, second.x), selected(is_first, first.y, second.y),
          selected(is_first, first.z, second.z), selected(is_first, first.w, second.w)};
}

JITNORM_INLINE void swap_if(bool is_swapped, uint4& a, uint4& b) {
  const uint4 first = selected(is_swapped, b, a);
  b = selected(is_swapped, a, b);
  a = first;
}

// A chunk of a parameter, which the rows of a block load again and again from the L1 cache. In float32, a lane has 64
// bytes, and eight lanes that loaded them in order would meet in two of eight banks; so they load them in rotated order
// instead.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_parameter(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  if constexpr (sizeof(T) == 4 && kAccessBytes == 16) {
    if (index < kWholeChunks) {
      const int turn = threadIdx.x / 2 % 4;
      const uint4* from = reinterpret_cast<const uint4*>(row + index * kChunkSize);
      JITNORM_UNROLL
      for (int i = 0; i < 4; ++i) chunk.accesses[i] = from[i ^ turn];
      swap_if(turn & 1, chunk.accesses[0], chunk.accesses[1]);
      swap_if(turn & 1, chunk.accesses[2], chunk.accesses[3]);
      swap_if(turn & 2, chunk.accesses[0], chunk.accesses[2]);
      swap_if(turn & 2, chunk.accesses[1], chunk.accesses[3]);
      return;
    }
  }
  load_chunk(chunk, row, index);
}

JITNORM_INLINE uint4 exchange_with_neighbour(uint4 value) {
  return {__shfl_xor_sync(kFullWarp, value.x, 1), __shfl_xor_sync(kFullWarp, value.y, 1),
          __shfl_xor_sync(kFullWarp, value.z, 1), __shfl_xor_sync(kFullWarp, value.w, 1)};
}

// Two lanes store their neighbouring chunks together, 32 bytes of one and then 32 of the other: alone, each lane would
// write half a sector at a time. Add + RMSNorm of 4096 x 4096 went from 0.785 to 0.956 of the roofline.
// Every lane of the warp takes part.
template <typename T>
JITNORM_INLINE void store_in_pairs(T* row, int index, const Chunk<T, 16>& chunk) {
  constexpr int kAccesses = Chunk<T, 16>::kBytes / 16;
  const bool is_second = threadIdx.x % 2;
  uint4* to = reinterpret_cast<uint4*>(row + (index & ~1) * kChunkSize) + is_second;
  // All before any store: otherwise NVRTC 13.0 copies exchanges into both branches of the condition, in which the warp
  // diverges.
  uint4 others[kAccesses / 2];
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; i += 2) {
    others[i / 2] = exchange_with_neighbour(is_second ? chunk.accesses[i] : chunk.accesses[i + 1]);
  }
  if (index >= kWholeChunks) return;
  JITNORM_UNROLL
  for (int i = 0; i < kAccesses; i += 2) {
    to[i] = is_second ? others[i / 2] : chunk.accesses[i];
    to[i + kAccesses] = is_second ? chunk.accesses[i + 1] : others[i / 2];
  }
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk_alone(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  T* to = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(to, chunk.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (is_in_row(index, i)) to[i] = chunk.elements[i];
  }
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  if constexpr (kStoresInPairs && kAccessBytes == 16) {
    store_in_pairs(row, index, chunk);
  } else {
    store_chunk_alone(row, index, chunk);
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

// The chunk of values, rounded to the type of the row.
template <typename T>
JITNORM_INLINE void store_rounded(T* row, int index, const float (&values)[kChunkSize]) {
  Chunk<T, kInputAccessBytes> chunk;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) round_to(values[i], chunk.elements[i]);
  store_chunk(row, index, chunk);
}

constexpr int kCodeWords = kChunkSize / kCodesPerWord;
constexpr int kCodeBytes = kCodeWords * 4;

union alignas(16) CodeChunk {
  UInt32 words[kCodeWords];
  typename Access<kCodesAccessBytes>::Type accesses[kCodeBytes / kCodesAccessBytes];
};

JITNORM_INLINE void store_codes(UInt8* row, int index, const CodeChunk& codes) {
  if (index < kWholeChunks) {
    copy_words(row + index * kCodeBytes, codes.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {  // only one-byte codes have partial chunks
    if (is_in_row(index, i)) row[index * kCodeBytes + i] = (UInt8)(codes.words[i / 4] >> (i % 4 * 8));
  }
}
