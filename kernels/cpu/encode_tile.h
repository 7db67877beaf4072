// Codes of a tile, a chunk a lane.
constexpr int kChunkWords = kChunkSize / kCodesPerWord;

typedef UInt32 TileCodes[kLanes * kChunkWords];

// A chunk's values, of which vectors are made where this is done for all chunks of a tile in a loop.
JITNORM_INLINE void take_chunk(const Tile& tile, int k, float (&chunk)[kChunkSize]) {
  JITNORM_UNROLL
  for (int e = 0; e < kChunkSize; ++e) chunk[e] = tile.at[e][k];
}

JITNORM_INLINE void store_codes(const TileCodes& codes, int t, UInt8* row) {
  constexpr int kCodesPerByte = kCodesPerWord / 4;
  const int left = kHiddenSize - t * kTileSize;
  UInt8* to = row + t * kTileSize / kCodesPerByte;
  if (kHiddenSize % kTileSize == 0 || left >= kTileSize) {
    __builtin_memcpy(to, codes, sizeof(TileCodes));
  } else {
    __builtin_memcpy(to, codes, left / kCodesPerByte);
  }
}
