// From codes and scales back to values, in independent items.
#pragma once

#include "arguments.h"
#include "codes.h"
#include "given_scales.h"
#include "intrinsics.h"
#include "items.h"
#include "rows.h"
#include "scale_layout.h"

#ifdef __CUDACC__
#include "../cuda/item_chunks.cuh"
#else
#include "../cpu/item_chunks.h"
#endif

// The value of a stored scale: in float32, E4M3, or UE8M0.
JITNORM_INLINE float value_of_scale(float scale) { return scale; }

JITNORM_INLINE float value_of_scale(UInt8 scale) {
  if constexpr (kScaleFormat == ScaleFormat::kE4M3) return to_float(Float8E4M3{scale});
  // 2^(scale - 127), a denormal for 0, NaN for 255.
  return float_of(scale == 0 ? 0x00400000u : scale == 255 ? 0x7fffffffu : (UInt32)scale << 23);
}

// The scale of block `column` of a row, with each matrix of a batch padded separately; or that of the row, the tensor
// or the matrix.
JITNORM_INLINE float scale_at(const Arguments& a, Int64 row, int column) {
  const Int64 matrix = matrix_of(a, row), m = row - matrix * a.rows;
  if constexpr (kScaleOwner == ScaleOwner::kRow) return a.row_scale[row];
  if constexpr (kScaleOwner == ScaleOwner::kTensor) return a.scale[kScalePerMatrix ? matrix : 0];
  const Int64 line = m / kBlockRows;
  const Int64 offset = kHasSwizzledScales ? swizzled_offset(line, column) : linear_offset(line, column, a.rows);
  return value_of_scale(a.block_scale[matrix * scale_rows(a.rows) * kPaddedScaleColumns + offset]);
}

// The global scale of a row: an encode scale if it is given, else a decode scale.
JITNORM_INLINE float global_scale_at(const Arguments& a, Int64 row) {
  if constexpr (kGlobalScale == GlobalScaleKind::kGiven) return a.global_scale[kScalePerMatrix ? matrix_of(a, row) : 0];
  if constexpr (kGlobalScale == GlobalScaleKind::kRow) return a.row_scale[row];
  if constexpr (kGlobalScale == GlobalScaleKind::kTensor) return *a.tensor_scale;
  return 1.0f;
}

// Code i of those that begin at `codes`; ignore the bits above it.
JITNORM_INLINE UInt32 code_at(const UInt8* codes, int i) {
  return kCodeBits == 8 ? codes[i] : codes[i / 2] >> (i % 2 * 4);
}

// An item is a chunk of a row.
JITNORM_INLINE void dequantize_row_item(const Arguments& a, Int64 item) {
  constexpr int kCodeBytes = kChunkSize * kCodeBits / 8;
  const Int64 row = item / kChunks;
  const int index = (int)(item % kChunks);
  const UInt8* from = a.codes + row_offset(row, a.extents, a.codes_strides) + index * kCodeBytes;
  Output* to = a.out + row_offset(row, a.extents, a.out_strides) + index * kChunkSize;
  const DecodeContext context = {scale_at(a, row, index * kChunkSize / kBlockSize), global_scale_at(a, row)};
  if (index < kHiddenSize / kChunkSize) {
    Output results[kChunkSize];
    decode_item_chunk<kCodesAccessBytes>(from, results, context);
    store_item_chunk<kOutAccessBytes>(to, results);
  } else {
    for (int i = 0; i < kHiddenSize % kChunkSize; ++i) {
      rescale_to(to[i], value_of_code<kElement>(code_at(from, i)), context, i);
    }
  }
}

#ifdef JITNORM_GIVEN_SCALES
// The same, with given scales for columns, or for blocks of several rows.
JITNORM_INLINE void dequantize_given_item(const Arguments& a, Int64 item) {
  const Int64 row = item / kChunks, matrix = matrix_of(a, row);
  const int index = (int)(item % kChunks), first = index * kChunkSize;
  const UInt8* from = a.codes + row_offset(row, a.extents, a.codes_strides) + first;
  Output* to = a.out + row_offset(row, a.extents, a.out_strides) + first;
  float scales[kChunkSize];
  const Int64 of_matrix = matrix * given_scale_rows(a.rows) * kScaleColumns;
  load_given_scales(given_scales_of(a, row - matrix * a.rows) + of_matrix, index, scales);
  if (index < kHiddenSize / kChunkSize) {
    Output results[kChunkSize];
    decode_item_chunk<kCodesAccessBytes>(from, results, scales);
    store_item_chunk<kOutAccessBytes>(to, results);
  } else {
    for (int i = 0; i < kHiddenSize % kChunkSize; ++i) {
      rescale_to(to[i], value_of_code<kElement>(from[i]), scales, i);
    }
  }
}
#endif

// An item is a block of a column. Neighbouring items are neighbouring columns.
JITNORM_INLINE void dequantize_column_items(const Arguments& a, Int64 item, Columns<1>) {
  constexpr int kBlockBytes = kBlockSize * kCodeBits / 8;
  const Int64 block = item / kHiddenSize;
  const int column = (int)(item % kHiddenSize);
  const DecodeContext context = {value_of_scale(a.block_scale[item]), global_scale_at(a, block)};
  Output* to = a.out + block * kBlockSize * kHiddenSize + column;
  UInt32 codes[kBlockSize];
  Output results[kBlockSize];
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const Int64 row = block * kBlockBytes + i * kCodeBits / 8;
    const UInt8 byte = a.codes[row_offset(row, a.extents, a.codes_strides) + column];
    codes[i] = byte >> (i * kCodeBits % 8);
  }
  decode_codes(codes, results, context);
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) to[(Int64)i * kHiddenSize] = results[i];
}
