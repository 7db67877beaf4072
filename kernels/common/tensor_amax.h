// The largest magnitude of a tensor, of whose parts another launch has found the largest magnitudes.
#pragma once

#include "arguments.h"
#include "intrinsics.h"

#ifdef JITNORM_TENSOR_AMAX
#ifdef __CUDACC__
// Each lane of a warp has some of them: they are loaded before the rows, and reduced while these are on their way.
struct GivenScale {
  float of_lane[kAmaxParts / 32];
};

JITNORM_INLINE GivenScale given_amax(const Arguments& a) {
  GivenScale given;
  JITNORM_UNROLL
  for (int i = 0; i < kAmaxParts / 32; ++i) given.of_lane[i] = a.amax_parts[i * 32 + threadIdx.x % 32];
  return given;
}

// As integers, magnitudes have the same order, NaN above infinity.
JITNORM_INLINE float tensor_amax(const GivenScale& given) {
  float amax = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kAmaxParts / 32; ++i) amax = max_magnitude(amax, given.of_lane[i]);
  return float_of(__reduce_max_sync(kFullWarp, bits_of(amax)));
}
#else
typedef float GivenScale;

JITNORM_INLINE GivenScale given_amax(const Arguments& a) {
  float amax = 0.0f;
  for (int i = 0; i < kAmaxParts; ++i) amax = max_magnitude(amax, a.amax_parts[i]);
  return amax;
}

JITNORM_INLINE float tensor_amax(GivenScale given) { return with_positive_nan(given); }
#endif
#else
typedef float GivenScale;
#endif
