// Sums and maxima over the values of a thread, or over neighbouring lanes: the steps of the tree of docs/numerics.md.
#pragma once

#include "../common/intrinsics.h"

// The butterfly over `kWidth` neighbouring lanes; each of them gets the sum.
template <int kWidth>
JITNORM_INLINE float butterfly_sum(float value) {
  JITNORM_UNROLL
  for (int mask = kWidth / 2; mask > 0; mask /= 2) value = add_rn(value, __shfl_xor_sync(kFullWarp, value, mask));
  return value;
}

// The same for several values at once, with fewer exchanges: 6 for four values, not 20. After each of the first
// exchanges, a lane continues with half of them. Lane l gets the sum of value l * kCount / kWidth.
template <int kWidth, int kCount>
JITNORM_INLINE float butterfly_sums(const float (&values)[kCount], int lane) {
  if constexpr (kCount == 1) {
    return butterfly_sum<kWidth>(values[0]);
  } else {
    const bool is_upper = lane & (kWidth / 2);
    float half[kCount / 2];
    JITNORM_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      const float lower = values[i], upper = values[i + kCount / 2];
      const float other = __shfl_xor_sync(kFullWarp, is_upper ? lower : upper, kWidth / 2);
      half[i] = add_rn(is_upper ? upper : lower, other);
    }
    return butterfly_sums<kWidth / 2>(half, lane);
  }
}

// The same among the values of a thread.
template <int kCount>
JITNORM_INLINE float fold_sum(const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    float half[kCount / 2];
    JITNORM_UNROLL
    for (int i = 0; i < kCount / 2; ++i) half[i] = add_rn(values[i], values[i + kCount / 2]);
    return fold_sum(half);
  }
}

template <int kWidth>
JITNORM_INLINE float butterfly_max(float value) {
  JITNORM_UNROLL
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value = max_magnitude(value, __shfl_xor_sync(kFullWarp, value, mask));
  }
  return value;
}
