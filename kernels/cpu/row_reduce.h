// Reductions over a row: the tree that the GPU's row_reduce.cuh has, written as halves folded onto each other.
JITNORM_INLINE float fold_sum(float* values, int width) {
  for (int half = width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = add_rn(values[i], values[i + half]);
  }
  return values[0];
}

// The sum of a row's terms along the tree; accumulate(sum, value) adds a value's term.
template <typename Accumulate>
JITNORM_INLINE float tree_sum(const float* row, Accumulate accumulate) {
  float groups[kPaddedGroups] = {};
  for (int g = 0; g < kGroups; ++g) {
    float sums[kGroupChunks] = {};
    for (int i = 0; i < kGroupChunks && g * kGroupChunks + i < kChunks; ++i) {
      const int begin = (g * kGroupChunks + i) * kChunkSize;
      const int end = begin + kChunkSize < kHiddenSize ? begin + kChunkSize : kHiddenSize;
      for (int e = begin; e < end; ++e) sums[i] = accumulate(sums[i], row[e]);
    }
    groups[g] = fold_sum(sums, kGroupChunks);
  }
  return fold_sum(groups, kPaddedGroups);
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

JITNORM_INLINE float row_max(const float* row, int length) {
  float amax = 0.0f;
  for (int i = 0; i < length; ++i) amax = max_magnitude(amax, row[i]);
  return amax;
}
