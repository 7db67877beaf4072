// A row in the cache: tiles of chunks side by side, one chunk per lane, so that sums, amaxes, scales and codes of
// chunks are computed as vectors. Values after the row are zero.
#pragma once

#include "../common/arguments.h"
#include "../common/codes.h"
#include "../common/intrinsics.h"
#include "transpose.h"

constexpr int kTileSize = kLanes * kChunkSize;

struct alignas(kVectorBytes) Tile {
  float at[kChunkSize][kLanes];  // at[e][k] is element e of chunk k
};

constexpr int kRowTiles = (kHiddenSize + kTileSize - 1) / kTileSize;

// Whether element e of chunk k of tile t belongs to the row.
JITNORM_INLINE bool is_in_row(int t, int e, int k) {
  return kHiddenSize % kTileSize == 0 || t * kTileSize + k * kChunkSize + e < kHiddenSize;
}

// Calls process(e, k) for element e of each chunk k, in vectors.
template <typename Process>
JITNORM_INLINE void for_each_value(Process process) {
  for (int e = 0; e < kChunkSize; ++e) {
    JITNORM_LANES
    for (int k = 0; k < kLanes; ++k) process(e, k);
  }
}

template <typename T>
JITNORM_INLINE void load_whole_tile(const T* from, Tile& tile) {
  UInt32 columns[8][kLanes];
  if constexpr (sizeof(T) == 2) {
    transpose_rows((const UInt8*)from, kChunkSize * 2, columns);
    for (int j = 0; j < 8; ++j) {
      JITNORM_LANES
      for (int k = 0; k < kLanes; ++k) {
        tile.at[2 * j][k] = to_float(T{(UInt16)columns[j][k]});
        tile.at[2 * j + 1][k] = to_float(T{(UInt16)(columns[j][k] >> 16)});
      }
    }
  } else {
    float values[kTileSize];
    for (int i = 0; i < kTileSize; ++i) values[i] = to_float(from[i]);
    for (int half = 0; half < 2; ++half) {
      transpose_rows((const UInt8*)(values + half * 8), kChunkSize * 4, columns);
      __builtin_memcpy(tile.at[half * 8], columns, sizeof(columns));
    }
  }
}

template <typename T>
JITNORM_INLINE void store_whole_tile(const Tile& tile, T* to) {
  UInt32 columns[8][kLanes];
  if constexpr (sizeof(T) == 2) {
    for (int j = 0; j < 8; ++j) {
      JITNORM_LANES
      for (int k = 0; k < kLanes; ++k) {
        columns[j][k] = rounded_bits(tile.at[2 * j][k], T{}) | rounded_bits(tile.at[2 * j + 1][k], T{}) << 16;
      }
    }
    transpose_columns(columns, (UInt8*)to, kChunkSize * 2);
  } else {
    for (int half = 0; half < 2; ++half) {
      for (int j = 0; j < 8; ++j) {
        JITNORM_LANES
        for (int k = 0; k < kLanes; ++k) columns[j][k] = rounded_bits(tile.at[half * 8 + j][k], T{});
      }
      transpose_columns(columns, (UInt8*)(to + half * 8), kChunkSize * 4);
    }
  }
}

// Values of tile t of a row of `size` values, followed by zeros.
template <typename T>
JITNORM_INLINE void load_tile(const T* row, int size, int t, Tile& tile) {
  const int left = size - t * kTileSize;
  if ((size == kHiddenSize && size % kTileSize == 0) || left >= kTileSize) {
    load_whole_tile(row + t * kTileSize, tile);
  } else {
    T padded[kTileSize] = {};
    if (left > 0) __builtin_memcpy(padded, row + t * kTileSize, left * sizeof(T));
    load_whole_tile(padded, tile);
  }
}

#ifdef JITNORM_UNWEIGHTED
JITNORM_INLINE void load_tile(const One*, int, int, Tile& tile) {
  for_each_value([&](int e, int k) { tile.at[e][k] = 1.0f; });
}

#endif
template <typename T>
JITNORM_INLINE void store_tile(const Tile& tile, int t, T* row) {
  const int left = kHiddenSize - t * kTileSize;
  if (kHiddenSize % kTileSize == 0 || left >= kTileSize) {
    store_whole_tile(tile, row + t * kTileSize);
  } else {
    T values[kTileSize];
    store_whole_tile(tile, values);
    __builtin_memcpy(row + t * kTileSize, values, left * sizeof(T));
  }
}

#ifdef JITNORM_TWO_SIZES
// The part of tile t that belongs to a row of `size` values.
template <typename T>
JITNORM_INLINE void store_part_of_row(const Tile& tile, int t, int size, T* row) {
  const int left = size - t * kTileSize;
  if (left <= 0) return;
  T values[kTileSize];
  store_whole_tile(tile, values);
  __builtin_memcpy(row + t * kTileSize, values, (left < kTileSize ? left : kTileSize) * sizeof(T));
}

#endif
JITNORM_INLINE Int64 row_after(const Arguments& a, Int64 row) { return row + 1 < a.rows ? row + 1 : row; }

// Prefetches tile t of a row that is soon read or written. A row takes longer than the latency of memory, but the
// processor does not prefetch beyond a page: with this, plain norms of 4096 columns take 6.8 ms, not 7.9.
template <typename T>
JITNORM_INLINE void prefetch_tile(const T* row, int t) {
  constexpr int kCacheLine = 64;
  for (int i = 0; i < kTileSize; i += kCacheLine / (int)sizeof(T)) __builtin_prefetch(row + t * kTileSize + i);
}

// Zeroes the values after the row, which arithmetic may have changed.
JITNORM_INLINE void clear_padding(int t, Tile& tile) {
  if (kHiddenSize - t * kTileSize >= kTileSize) return;
  for_each_value([&](int e, int k) { tile.at[e][k] = is_in_row(t, e, k) ? tile.at[e][k] : 0.0f; });
}
