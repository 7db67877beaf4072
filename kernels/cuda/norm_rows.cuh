// The schedule of row-wise norms: a row stays in the registers of its threads from its only load to its store.
// Short rows share a warp, rows of up to a group have a warp each, longer ones a block.
static_assert(128 % kRowsPerBlock == 0, "the last block must end with the last padding row of a swizzled layout");

// Long rows are encoded a few chunks at a time, by the same code: unrolled in full, 8 chunks took NVRTC 0.34 s instead
// of 0.2, and the compiler kept their unpacked floats, twice the size of the chunks, in more registers than there are.
constexpr int kChunksAtOnce = kChunksPerLane < 4 ? kChunksPerLane : 4;
constexpr int kChunkSlots = (kChunksPerLane + kChunksAtOnce - 1) / kChunksAtOnce * kChunksAtOnce;

// The weight is fetched before the reduction hides its latency, unless the registers are needed for the row.
constexpr bool kPrefetchesWeight =
    kChunksPerLane == kChunksAtOnce && kChunksPerLane * (int)(sizeof(InputChunk) + sizeof(WeightChunk)) <= 192;

JITNORM_INLINE void norm_rows(const Arguments& a) {
  const int thread = threadIdx.x % kThreadsPerRow;
  const int lane = threadIdx.x % kLanesPerRow;
  const int warp = thread / kLanesPerRow;
  const Int64 row = (Int64)blockIdx.x * kRowsPerBlock + threadIdx.x / kThreadsPerRow;
  const bool is_row = row < a.rows;

#if JITNORM_PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  // A block of one row may leave early; in a block of several, all lanes are needed by the shuffles below.
  if (!is_row) write_padding_row(a, row, thread);
  if (kRowsPerBlock == 1 && !is_row) return;

  const Input* from = a.input + (is_row ? row_offset(row, a.extents, a.input_strides) : 0);
  const int first_chunk = is_row ? thread : kChunks;
  InputChunk h[kChunkSlots];
  WeightChunk w[kChunksAtOnce];
  JITNORM_UNROLL
  for (int j = 0; j < kChunkSlots; ++j) load_chunk(h[j], from, first_chunk + j * kThreadsPerRow);
  if constexpr (kPrefetchesWeight) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) load_chunk(w[j], a.weight, first_chunk + j * kThreadsPerRow);
  }
#if JITNORM_PDL
  asm volatile("griddepcontrol.launch_dependents;");
#endif

  float sums[kChunksPerLane];
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) sums[j] = chunk_sum_of_squares(h[j]);
  const float rstd = reciprocal_rms(row_sum(sums, warp, lane), a.eps);

  const EncodeContext context = begin_row(a, is_row ? row : 0);
#pragma unroll 1
  for (int first = 0; first < kChunkSlots; first += kChunksAtOnce) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksAtOnce; ++j) {
      const int index = first_chunk + (first + j) * kThreadsPerRow;
      if constexpr (!kPrefetchesWeight) load_chunk(w[j], a.weight, index);
      float y[kChunkSize];
      JITNORM_UNROLL
      for (int i = 0; i < kChunkSize; ++i) {
        y[i] = normalize(to_float(h[j].elements[i]), rstd, to_float(w[j].elements[i]));
      }
      encode_chunk(context, index, y);
    }
    JITNORM_UNROLL
    for (int j = 0; j + kChunksAtOnce < kChunkSlots; ++j) h[j] = h[j + kChunksAtOnce];
  }
  if (is_row) end_row(context, thread);
}
