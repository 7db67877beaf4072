// Codes of a chunk, from registers to memory.
#pragma once

#include "../common/codes.h"
#include "chunks.cuh"

constexpr int kCodeWords = kChunkSize / kCodesPerWord;
constexpr int kCodeBytes = kCodeWords * 4;

union alignas(16) CodeChunk {
  UInt32 words[kCodeWords];
  typename Access<kCodesAccessBytes>::Type accesses[kCodeBytes / kCodesAccessBytes];
};

JITNORM_INLINE void store_codes(UInt8* row, int index, const CodeChunk& codes) {
  if (index < kWholeChunks) {
    copy_words(row + index * kCodeBytes, codes.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {  // only codes of a byte have partial chunks
    if (is_in_row(index, i)) row[index * kCodeBytes + i] = (UInt8)(codes.words[i / 4] >> (i % 4 * 8));
  }
}
