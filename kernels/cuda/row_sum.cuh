// The row statistic: one tree of additions, fixed by the hidden size alone, so that every schedule gives the same bits.
JITNORM_INLINE float chunk_sum_of_squares(const InputChunk& chunk) {
  float sum = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    const float h = to_float(chunk.elements[i]);
    sum = fma_rn(h, h, sum);
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

// The butterfly over the groups' sums, those missing up to a power of two being zero, in one thread's registers.
template <int kWidth>
JITNORM_INLINE float fold_sum(float (&values)[kWidth]) {
  JITNORM_UNROLL
  for (int half = kWidth / 2; half > 0; half /= 2) {
    JITNORM_UNROLL
    for (int i = 0; i < half; ++i) values[i] = add_rn(values[i], values[i + half]);
  }
  return values[0];
}

// Sum over a row of which this thread holds chunks `sums`; each thread of the row gets it.
JITNORM_INLINE float row_sum(const float (&sums)[kChunksPerLane], int warp, int lane) {
  if constexpr (kGroups == 1) {
    return butterfly_sum<kLanesPerRow>(sums[0]);
  } else {
    __shared__ float group_sums[kPaddedGroups];
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) {
      const float sum = butterfly_sum<32>(sums[j]);
      const int group = j * kWarpsPerRow + warp;
      if (lane == 0 && group < kPaddedGroups) group_sums[group] = sum;
    }
    if (threadIdx.x >= kChunksPerLane * kWarpsPerRow && threadIdx.x < kPaddedGroups) group_sums[threadIdx.x] = 0.0f;
    __syncthreads();
    constexpr int kLanes = kPaddedGroups < 32 ? kPaddedGroups : 32;
    float partial[kPaddedGroups / kLanes];
    JITNORM_UNROLL
    for (int i = 0; i < kPaddedGroups / kLanes; ++i) partial[i] = group_sums[i * kLanes + lane % kLanes];
    return butterfly_sum<kLanes>(fold_sum(partial));
  }
}
