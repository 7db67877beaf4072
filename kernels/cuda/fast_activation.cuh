// The activations of a chunk. SiLU has a fast path for chunks whose arguments all lie within its bounds, as nearly all
// do: one check of 16 arguments instead of two bounds for each. On an H100, SwiGLU to MXFP4 of experts' rows of 9000 x
// 3584 went from 61.9 us to 54.9, RMSNorm + SiLU to NVFP4 of 16384 x 4096 from 78.4 to 77.0.
#pragma once

#include "../common/activation.h"
#include "chunks.cuh"

// The bits of 86.5 twice: what is below in magnitude is within SiLU's bounds, as is what is rounded to less. Magnitudes
// in bfloat16 are compared as float16, of which Hopper compares six with one instruction: the order of the bits is the
// same, and what would be NaN is not below. Other inputs have no fast path.
JITNORM_INLINE UInt32 pair_of_limits(BFloat16) { return 0x42ad42adu; }
JITNORM_INLINE UInt32 pair_of_limits(Float16) { return 0x55685568u; }

JITNORM_INLINE UInt32 magnitudes_of_pair(UInt32 pair) {
  UInt32 result;
  asm("abs.f16x2 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

JITNORM_INLINE UInt32 max_magnitudes(UInt32 magnitudes, UInt32 pair) {
  UInt32 result;
  asm("{\n.reg .b32 m;\nabs.f16x2 m, %2;\nmax.NaN.f16x2 %0, %1, m;\n}" : "=r"(result) : "r"(magnitudes), "r"(pair));
  return result;
}

// Whether the magnitudes of eight pairs are all below the limits.
template <typename PairAt>
JITNORM_INLINE bool are_below(PairAt pair_at, UInt32 limits) {
  UInt32 largest = magnitudes_of_pair(pair_at(0));
  JITNORM_UNROLL
  for (int i = 1; i < kChunkSize / 2; ++i) largest = max_magnitudes(largest, pair_at(i));
  return (largest & 0xffffu) < (limits & 0xffffu) && largest < (limits & 0xffff0000u);
}

template <typename T, int kAccessBytes>
JITNORM_INLINE bool are_within_bounds(const Chunk<T, kAccessBytes>& x) {
  if constexpr (sizeof(T) == 2) {
    return are_below([&](int i) { return x.words[i]; }, pair_of_limits(T{}));
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
  return are_below(rounded_pair, pair_of_limits(BFloat16{}));
}

JITNORM_INLINE float value_of(const float (&x)[kChunkSize], int i) { return x[i]; }

// The activations of a chunk, or of 16 floats, which may be overwritten.
template <typename Values>
JITNORM_INLINE void activate(const Values& x, float (&result)[kChunkSize]) {
  if (kActivation == Activation::kSilu && are_within_bounds(x)) {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kPacked) {
      const Packed v = packed_from([&](int k) { return value_of(x, k); }, i);
      unpack(mul_rn(v, sigmoid_of_product(v, kSiluFactor, kSiluLow)), result + i);
    }
  } else {
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; i += kPacked) {
      unpack(activated<kActivation>(packed_from([&](int k) { return value_of(x, k); }, i)), result + i);
    }
  }
}
