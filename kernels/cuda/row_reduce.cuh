// Reductions over a row. The sum is one tree of additions, fixed by the hidden size alone, so that every schedule
// gives the same bits; a maximum has the same bits in any order.
JITNORM_INLINE float chunk_sum(const HeldChunk& chunk) {
  float sum = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) sum = add_rn(sum, to_float(chunk.elements[i]));
  return sum;
}

// What lies past the row counts as zero, also where the mean does not.
JITNORM_INLINE float chunk_sum_of_squares(const HeldChunk& chunk, float mean, int index) {
  float sum = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    const bool is_counted = !kCenters || index < kWholeChunks || is_in_row(index, i);
    const float d = is_counted ? centered(to_float(chunk.elements[i]), mean) : 0.0f;
    sum = fma_rn(d, d, sum);
  }
  return sum;
}

// The butterfly over `kWidth` neighbouring lanes; each of them gets the sum.
template <int kWidth>
JITNORM_INLINE float butterfly_sum(float value) {
  JITNORM_UNROLL
  for (int mask = kWidth / 2; mask > 0; mask /= 2) value = add_rn(value, __shfl_xor_sync(kFullWarp, value, mask));
  return value;
}

template <int kWidth>
JITNORM_INLINE float butterfly_max(float value) {
  JITNORM_UNROLL
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value = max_magnitude(value, __shfl_xor_sync(kFullWarp, value, mask));
  }
  return value;
}

// The sum over a row, whose group sums come one after another: add() is called by whole warps, total() by the block.
struct RowSum {
  float single;

  JITNORM_INLINE void add(float chunk_sum, int slot, int warp, int lane) {
    const float sum = butterfly_sum<kLanesPerRow>(chunk_sum);
    if constexpr (kGroups == 1) {
      single = sum;
    } else {
      const int group = slot * kWarpsPerRow + warp;
      if (lane == 0 && group < kPaddedGroups) group_sums()[group] = sum;
    }
  }

  JITNORM_INLINE float total(int lane) {
    if constexpr (kGroups == 1) {
      return single;
    } else {
      for (int g = kChunksPerLane * kWarpsPerRow + threadIdx.x; g < kPaddedGroups; g += kThreads)
        group_sums()[g] = 0.0f;
      __syncthreads();
      constexpr int kLanes = kPaddedGroups < 32 ? kPaddedGroups : 32;
      constexpr int kFolds = kPaddedGroups / kLanes;
      float partial[kFolds];
      JITNORM_UNROLL
      for (int i = 0; i < kFolds; ++i) partial[i] = group_sums()[i * kLanes + lane % kLanes];
      JITNORM_UNROLL
      for (int half = kFolds / 2; half > 0; half /= 2) {
        JITNORM_UNROLL
        for (int i = 0; i < half; ++i) partial[i] = add_rn(partial[i], partial[i + half]);
      }
      return butterfly_sum<kLanes>(partial[0]);
    }
  }

 private:
  JITNORM_INLINE static float* group_sums() {
    __shared__ float sums[kPaddedGroups];
    return sums;
  }
};

// The largest magnitude in a row of which each thread has seen `amax`.
JITNORM_INLINE float row_max(float amax, int warp, int lane) {
  const float of_warp = butterfly_max<kLanesPerRow>(amax);
  if constexpr (kWarpsPerRow == 1) {
    return of_warp;
  } else {
    __shared__ float of_warps[kWarpsPerRow];
    if (lane == 0) of_warps[warp] = of_warp;
    __syncthreads();
    float result = 0.0f;
    JITNORM_UNROLL
    for (int w = 0; w < kWarpsPerRow; ++w) result = max_magnitude(result, of_warps[w]);
    return result;
  }
}
