// An item is a chunk of a row: codes to values.
constexpr int kCodeBytes = kChunkSize * kCodeBits / 8;

JITNORM_INLINE void process_item(const Arguments& a, Int64 item) {
  const Int64 row = item / kChunks;
  const int index = (int)(item % kChunks);
  const UInt8* from = a.codes + row_offset(row, a.extents, a.codes_strides) + index * kCodeBytes;
  Output* to = a.out + row_offset(row, a.extents, a.out_strides) + index * kChunkSize;
  const DecodeContext context = {scale_at(a, row, index * kChunkSize / kBlockSize), global_scale_at(a, row)};
  if (index < kHiddenSize / kChunkSize) {
    UInt8 codes[kCodeBytes];
    Output values[kChunkSize];
    load_array<kCodesAccessBytes>(codes, from);
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) decode_to(values[i], code_at(codes, i), context);
    store_array<kOutAccessBytes>(to, values);
  } else {
    for (int i = 0; i < kHiddenSize % kChunkSize; ++i) decode_to(to[i], code_at(from, i), context);
  }
}
