// The activations of a chunk. SiLU has a fast path for warps whose arguments all lie within its bounds, as nearly all
// do: one check of 16 arguments instead of two bounds for each. On an H100, SwiGLU to MXFP4 of experts' rows of 9000 x
// 3584 went from 61.9 us to 54.9, RMSNorm + SiLU to NVFP4 of 16384 x 4096 from 78.4 to 77.0.
#pragma once

#include "../common/activation.h"
#include "activation_table.cuh"
#include "chunks.cuh"
#include "magnitudes.cuh"

// The bits of 86.5: what is below in magnitude is within SiLU's bounds, as is what is rounded to less. Inputs of other
// widths have no fast path.
JITNORM_INLINE UInt32 limit_of(BFloat16) { return 0x42adu; }
JITNORM_INLINE UInt32 limit_of(Float16) { return 0x5568u; }

template <typename T, int kAccessBytes>
JITNORM_INLINE bool are_within_bounds(const Chunk<T, kAccessBytes>& x) {
  if constexpr (sizeof(T) == 2) {
    return holds_for_warp(are_below(largest_magnitudes([&](int i) { return x.words[i]; }), limit_of(T{})));
  } else {
    return false;
  }
}

JITNORM_INLINE bool are_within_bounds(const float (&x)[kChunkSize]) {
  const auto rounded_pair = [&](int i) {
    UInt32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
    return pair;
  };
  return holds_for_warp(are_below(largest_magnitudes(rounded_pair), limit_of(BFloat16{})));
}

JITNORM_INLINE float value_of(const float (&x)[kChunkSize], int i) { return x[i]; }

// The activations of a chunk, or of 16 floats, which may be overwritten.
template <typename Values>
JITNORM_INLINE void activate(const Values& x, float (&result)[kChunkSize]) {
#ifdef JITNORM_TABULATES
  if (look_up(x, result)) return;
#else
  if (kActivation == Activation::kSilu && are_within_bounds(x)) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kPacked) {
      const Packed v = packed_from([&](int k) { return value_of(x, k); }, i);
      unpack(mul_rn(v, sigmoid_of_product(v, kSiluFactor, kSiluLow)), result + i);
    }
    return;
  }
#endif
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; i += kPacked) {
    unpack(activated<kActivation>(packed_from([&](int k) { return value_of(x, k); }, i)), result + i);
  }
}
