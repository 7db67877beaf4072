// An item is a chunk of a row in its new place. Each block of rows is read as rows of `kParts` and written by columns:
// eight rows that an epilogue tile stores together then lie together.
JITNORM_INLINE void process_item(const Arguments& a, Int64 item) {
  constexpr int kParts = kShuffleRows / 8;
  const Int64 row = item / kChunks;
  const int index = (int)(item % kChunks), within = (int)(row % kShuffleRows);
  const Int64 source = row - within + within % 8 * kParts + within / 8;
  const Input* from = a.input + row_offset(source, a.extents, a.input_strides) + index * kChunkSize;
  Input* to = a.out + row_offset(row, a.extents, a.out_strides) + index * kChunkSize;
  if (index < kHiddenSize / kChunkSize) {
    alignas(16) Input chunk[kChunkSize];
    load_array<kInputAccessBytes>(chunk, from);
    store_array<kOutAccessBytes>(to, chunk);
  } else {
    for (int i = 0; i < kHiddenSize % kChunkSize; ++i) to[i] = from[i];
  }
}
