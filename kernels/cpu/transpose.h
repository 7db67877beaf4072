// Transposes rows of eight words, one row per lane, and back: `columns[j][k]` is word j of row k.
#pragma once

#include "../common/intrinsics.h"

// As many lanes as a vector register has floats.
#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
constexpr int kVectorBytes = kLanes * 4;

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define JITNORM_SHUFFLES
#endif
#endif

#ifdef JITNORM_SHUFFLES
typedef UInt32 Row __attribute__((vector_size(32)));

#ifdef __AVX512F__
typedef UInt32 Vector __attribute__((vector_size(64)));

#define JITNORM_SHUFFLE(a, b, i0, i1, i2, i3, i4, i5, i6, i7)                                                     \
  __builtin_shufflevector(a, b, JITNORM_LANE(i0), JITNORM_LANE(i1), JITNORM_LANE(i2), JITNORM_LANE(i3),           \
                          JITNORM_LANE(i4), JITNORM_LANE(i5), JITNORM_LANE(i6), JITNORM_LANE(i7),                 \
                          JITNORM_LANE(i0) + 8, JITNORM_LANE(i1) + 8, JITNORM_LANE(i2) + 8, JITNORM_LANE(i3) + 8, \
                          JITNORM_LANE(i4) + 8, JITNORM_LANE(i5) + 8, JITNORM_LANE(i6) + 8, JITNORM_LANE(i7) + 8)
#define JITNORM_LANE(i) ((i) % 8 + (i) / 8 * 16)

JITNORM_INLINE Row row_at(const UInt8* from) {
  Row row;
  __builtin_memcpy(&row, from, sizeof(row));
  return row;
}

// Two rows side by side. Put together in memory, they would be loaded only once both are stored.
JITNORM_INLINE void load_rows(const UInt8* from, int row_bytes, Vector& rows) {
  const Row low = row_at(from), high = row_at(from + 8 * row_bytes);
  rows = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

JITNORM_INLINE void store_rows(const Vector& rows, UInt8* to, int row_bytes) {
  const Row low = __builtin_shufflevector(rows, rows, 0, 1, 2, 3, 4, 5, 6, 7);
  const Row high = __builtin_shufflevector(rows, rows, 8, 9, 10, 11, 12, 13, 14, 15);
  __builtin_memcpy(to, &low, sizeof(low));
  __builtin_memcpy(to + 8 * row_bytes, &high, sizeof(high));
}
#else
typedef Row Vector;

#define JITNORM_SHUFFLE __builtin_shufflevector

JITNORM_INLINE void load_rows(const UInt8* from, int, Vector& rows) { __builtin_memcpy(&rows, from, sizeof(rows)); }
JITNORM_INLINE void store_rows(const Vector& rows, UInt8* to, int) { __builtin_memcpy(to, &rows, sizeof(rows)); }
#endif

// Transposes 8x8 words, or two times 8x8 words side by side.
JITNORM_INLINE void transpose(Vector (&rows)[8]) {
  Vector pairs[8], quads[8];
  JITNORM_UNROLL
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = JITNORM_SHUFFLE(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = JITNORM_SHUFFLE(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  JITNORM_UNROLL
  for (int i = 0; i < 8; i += 4) {
    JITNORM_UNROLL
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = JITNORM_SHUFFLE(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * j + 1] = JITNORM_SHUFFLE(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) {
    rows[i] = JITNORM_SHUFFLE(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = JITNORM_SHUFFLE(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

JITNORM_INLINE void transpose_rows(const UInt8* from, int row_bytes, UInt32 (&columns)[8][kLanes]) {
  Vector rows[8];
  JITNORM_UNROLL
  for (int k = 0; k < 8; ++k) load_rows(from + k * row_bytes, row_bytes, rows[k]);
  transpose(rows);
  __builtin_memcpy(columns, rows, sizeof(columns));
}

JITNORM_INLINE void transpose_columns(const UInt32 (&columns)[8][kLanes], UInt8* to, int row_bytes) {
  Vector rows[8];
  __builtin_memcpy(rows, columns, sizeof(columns));
  transpose(rows);
  JITNORM_UNROLL
  for (int k = 0; k < 8; ++k) store_rows(rows[k], to + k * row_bytes, row_bytes);
}
#else
JITNORM_INLINE void transpose_rows(const UInt8* from, int row_bytes, UInt32 (&columns)[8][kLanes]) {
  for (int k = 0; k < kLanes; ++k) {
    for (int j = 0; j < 8; ++j) __builtin_memcpy(&columns[j][k], from + k * row_bytes + j * 4, 4);
  }
}

JITNORM_INLINE void transpose_columns(const UInt32 (&columns)[8][kLanes], UInt8* to, int row_bytes) {
  for (int k = 0; k < kLanes; ++k) {
    for (int j = 0; j < 8; ++j) __builtin_memcpy(to + k * row_bytes + j * 4, &columns[j][k], 4);
  }
}
#endif
