// The row statistic: the tree that row_sum.cuh has for the GPU, written as halves folded onto each other.
JITNORM_INLINE float fold_sum(float* values, int width) {
  for (int half = width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = add_rn(values[i], values[i + half]);
  }
  return values[0];
}

JITNORM_INLINE float chunk_sum_of_squares(const Input* chunk, int length) {
  float sum = 0.0f;
  for (int i = 0; i < length; ++i) {
    const float h = to_float(chunk[i]);
    sum = fma_rn(h, h, sum);
  }
  return sum;
}

JITNORM_INLINE float row_sum(const Input* row) {
  float groups[kPaddedGroups] = {};
  for (int g = 0; g < kGroups; ++g) {
    float sums[kGroupChunks] = {};
    for (int i = 0; i < kGroupChunks && g * kGroupChunks + i < kChunks; ++i) {
      const int begin = (g * kGroupChunks + i) * kChunkSize;
      const int left = kHiddenSize - begin;
      sums[i] = chunk_sum_of_squares(row + begin, left < kChunkSize ? left : kChunkSize);
    }
    groups[g] = fold_sum(sums, kGroupChunks);
  }
  return fold_sum(groups, kPaddedGroups);
}
