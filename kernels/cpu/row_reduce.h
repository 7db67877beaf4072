// Reductions over a row: the tree that the GPU's row_reduce.cuh has, written as halves folded onto each other.
template <int kWidth>
JITNORM_INLINE float fold_sum(float (&values)[kWidth]) {
  JITNORM_UNROLL
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = add_rn(values[i], values[i + half]);
  }
  return values[0];
}

// The sums of a whole group's chunks. Transposed, chunks are columns, whose sums are taken side by side: with that,
// RMSNorm of 4096 columns takes 10 ms, not 18.
template <typename Accumulate>
JITNORM_INLINE void sum_chunks(const float* group, float (&sums)[kGroupChunks], Accumulate accumulate) {
  float columns[kChunkSize][kGroupChunks];
  for (int i = 0; i < kGroupChunks; i += 8) {
    for (int e = 0; e < kChunkSize; e += 8) {
      transpose_8x8(group + i * kChunkSize + e, kChunkSize, &columns[e][i], kGroupChunks);
    }
  }
  for (int e = 0; e < kChunkSize; ++e) {
    for (int i = 0; i < kGroupChunks; ++i) sums[i] = accumulate(sums[i], columns[e][i]);
  }
}

// The sum of a row's terms along the tree; accumulate(sum, value) adds a value's term.
template <typename Accumulate>
JITNORM_INLINE float tree_sum(const float* row, Accumulate accumulate) {
  constexpr int kGroupSize = kGroupChunks * kChunkSize;
  float groups[kPaddedGroups] = {};
  for (int g = 0; g < kGroups; ++g) {
    float sums[kGroupChunks] = {};
    const int left = kHiddenSize - g * kGroupSize;
    if (left >= kGroupSize) {
      sum_chunks(row + g * kGroupSize, sums, accumulate);
    } else {
      for (int i = 0; i * kChunkSize < left; ++i) {
        const int end = left < (i + 1) * kChunkSize ? left : (i + 1) * kChunkSize;
        for (int e = i * kChunkSize; e < end; ++e) sums[i] = accumulate(sums[i], row[g * kGroupSize + e]);
      }
    }
    groups[g] = fold_sum(sums);
  }
  return fold_sum(groups);
}

JITNORM_INLINE float row_sum(const float* row) {
  return tree_sum(row, [](float sum, float h) { return add_rn(sum, h); });
}

JITNORM_INLINE float row_sum_of_squares(const float* row, float mean) {
  return tree_sum(row, [mean](float sum, float h) {
    const float d = centered(h, mean);
    return fma_rn(d, d, sum);
  });
}

// As integers, magnitudes keep their order, NaN lies above infinity, and GCC sees the maximum.
JITNORM_INLINE float row_max(const float* row, int length) {
  UInt32 amax = 0;
  for (int i = 0; i < length; ++i) {
    const UInt32 magnitude = bits_of(row[i]) & 0x7fffffffu;
    amax = magnitude > amax ? magnitude : amax;
  }
  return float_of(amax);
}
