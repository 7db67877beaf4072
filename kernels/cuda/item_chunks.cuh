// Chunks of a row that are items of neighbouring threads.
#pragma once

#include "../common/fast_path.h"
#include "../common/undo_scales.h"
#include "accesses.cuh"
#include "fast_decoding.cuh"

// The results from several values.
template <int kCount, typename Scales>
JITNORM_INLINE void rescale(Output (&to)[kCount], const float (&values)[kCount], const Scales& scales) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) rescale_to(to[i], values[i], scales, i);
}

// From 2^-40 to 2^40: quotients and products of block values by it, and their remainders, stay in the normal range.
JITNORM_INLINE bool is_moderate(float a) { return bits_of(a) - 0x2b800000u < 0x28000000u; }

// Only blocks of E2M1 with scales in E4M3 are divided by a global scale.
template <int kCount>
JITNORM_INLINE void rescale(Output (&to)[kCount], const float (&values)[kCount], const DecodeContext& context) {
  if constexpr (kGlobalScale == GlobalScaleKind::kGiven) {
    if (is_moderate(context.global_scale)) {
      const float reciprocal = reciprocal_rn(context.global_scale);
      JITNORM_UNROLL
      for (int i = 0; i < kCount; ++i) {
        round_to(fast_quotient(mul_rn(values[i], context.scale), context.global_scale, reciprocal), to[i]);
      }
      return;
    }
  }
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) rescale_to(to[i], values[i], context, i);
}

// The results of codes, above each of which may be other bits.
template <int kCount, typename Scales>
JITNORM_INLINE void decode_codes(const UInt32 (&codes)[kCount], Output (&results)[kCount], const Scales& scales) {
  float values[kCount];
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] = value_of_code<kElement>(codes[i]);
  rescale(results, values, scales);
}

// The results of the codes of an item.
template <int kAccessBytes, typename Scales>
JITNORM_INLINE void decode_item_chunk(const UInt8* codes, Output (&results)[kChunkSize], const Scales& scales) {
  float values[kChunkSize];
  UInt32 words[kChunkSize / kCodesPerWord];
  load_array<kAccessBytes>(words, reinterpret_cast<const UInt32*>(codes));
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize / kCodesPerWord; ++i) decode_word<kElement>(words[i], values + i * kCodesPerWord);
  rescale(results, values, scales);
}

// Stores the chunk of an item. Lanes store theirs together if rows have whole groups of them, because then all lanes of
// a group have items, or none: decoding to float32 reaches 0.96 of a copy, not 0.46, to bfloat16 0.97, not 0.81.
template <int kAccessBytes, typename T>
JITNORM_INLINE void store_item_chunk(T* to, const T (&values)[kChunkSize]) {
  typedef typename Access<kAccessBytes>::Type Piece;
  constexpr int kLanes = Chunk<T, kAccessBytes>::kBytes / kAccessBytes;
  if constexpr (kLanes == 1 || kHiddenSize % (kLanes * kChunkSize) != 0) {
    store_array<kAccessBytes>(to, values);
  } else {
    Chunk<T, kAccessBytes> chunk;
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = values[i];
    const int own = threadIdx.x % kLanes;
    exchange_accesses<kAccessBytes>(chunk.words, ((1u << kLanes) - 1) << (threadIdx.x % 32 - own));
    Piece* pieces = reinterpret_cast<Piece*>(to - own * kChunkSize) + own;
    JITNORM_UNROLL
    for (int j = 0; j < kLanes; ++j) pieces[j * kLanes] = chunk.accesses[j];
  }
}
