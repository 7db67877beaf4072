// An item is a block of a column: values to codes and their scale. Neighbouring items are neighbouring columns.
constexpr int kBlockWords = kBlockSize / kCodesPerWord;

JITNORM_INLINE void process_item(const Arguments& a, Int64 item) {
  const Int64 block = item / kHiddenSize;
  const int column = (int)(item % kHiddenSize);
  const float scale_of_input = input_scale(a);
  float y[kBlockSize], amax = 0.0f;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockSize; ++i) {
    const Int64 row = row_offset(block * kBlockSize + i, a.extents, a.input_strides);
    y[i] = rescaled(to_float(a.input[row + column]), scale_of_input);
    amax = max_magnitude(amax, y[i]);
  }
  const GlobalScale global = global_scale_of(a, block, call_scale_of(a, given_of(a)), 0.0f, false);
  const BlockScale scale = choose_scale(y, amax, global);
  a.block_scale[item] = (Scale)scale.stored;
  UInt8* codes = a.codes + block * kBlockWords * 4 * kHiddenSize + column;
  JITNORM_UNROLL
  for (int i = 0; i < kBlockWords; ++i) {
    const UInt32 word = (encode_word(y + kCodesPerWord * i, scale.encode) & scale.keep) | scale.fill;
    JITNORM_UNROLL
    for (int j = 0; j < 4; ++j) codes[(4 * i + j) * (Int64)kHiddenSize] = (UInt8)(word >> (8 * j));
  }
}
