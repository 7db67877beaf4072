// Reductions over a row: the tree that the GPU's row_reduce.cuh has, written as halves folded onto each other.
JITNORM_INLINE float fold_sum(float* values, int width) {
  for (int half = width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = add_rn(values[i], values[i + half]);
  }
  return values[0];
}

JITNORM_INLINE float chunk_sum_of_squares(const float* chunk, int length) {
  float sum = 0.0f;
  for (int i = 0; i < length; ++i) sum = fma_rn(chunk[i], chunk[i], sum);
  return sum;
}

JITNORM_INLINE float row_sum_of_squares(const float* row) {
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

JITNORM_INLINE float row_max(const float* row, int length) {
  float amax = 0.0f;
  for (int i = 0; i < length; ++i) amax = max_magnitude(amax, row[i]);
  return amax;
}
