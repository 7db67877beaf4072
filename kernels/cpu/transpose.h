// An 8x8 matrix, transposed: `to[j * to_stride + i] = from[i * from_stride + j]`.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define JITNORM_SHUFFLES
#endif
#endif

#ifdef JITNORM_SHUFFLES
typedef float Float8 __attribute__((vector_size(32), aligned(4), may_alias));

JITNORM_INLINE void transpose_8x8(const float* from, int from_stride, float* to, int to_stride) {
  Float8 rows[8], pairs[8], quads[8];
  JITNORM_UNROLL
  for (int i = 0; i < 8; ++i) rows[i] = *reinterpret_cast<const Float8*>(from + i * from_stride);
  JITNORM_UNROLL
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  JITNORM_UNROLL
  for (int i = 0; i < 8; i += 4) {
    JITNORM_UNROLL
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * j + 1] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<Float8*>(to + i * to_stride) =
        __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *reinterpret_cast<Float8*>(to + (i + 4) * to_stride) =
        __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#else
JITNORM_INLINE void transpose_8x8(const float* from, int from_stride, float* to, int to_stride) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}
#endif
