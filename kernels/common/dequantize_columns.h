// An item is a block of a column: codes to values. Neighbouring items are neighbouring columns.
constexpr int kBlockBytes = kBlockSize * kCodeBits / 8;

JITNORM_INLINE void process_item(const Arguments& a, Int64 item) {
  const Int64 block = item / kHiddenSize;
  const int column = (int)(item % kHiddenSize);
  const DecodeContext context = {value_of_scale(a.block_scale[item]), global_scale_at(a, block)};
  Output* to = a.out + block * kBlockSize * kHiddenSize + column;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const Int64 row = block * kBlockBytes + i * kCodeBits / 8;
    const UInt8 byte = a.codes[row_offset(row, a.extents, a.codes_strides) + column];
    decode_to(to[(Int64)i * kHiddenSize], byte >> (i * kCodeBits % 8), context);
  }
}
