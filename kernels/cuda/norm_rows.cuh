// The schedule of row-wise norms: a row stays in the registers of its threads from its only load to its store.
// Short rows share a warp, rows of up to a group have a warp each, longer ones a block.
static_assert(128 % kRowsPerBlock == 0, "the last block must end with the last padding row of a swizzled layout");

// The weight is fetched before the reduction hides its latency, unless the registers are needed for the row.
constexpr bool kPrefetchesWeight = kChunksPerLane * (int)(sizeof(InputChunk) + sizeof(WeightChunk)) <= 192;

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
  InputChunk h[kChunksPerLane];
  WeightChunk w[kChunksPerLane];
  int index[kChunksPerLane];
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) {
    index[j] = is_row ? (j * kWarpsPerRow + warp) * kLanesPerRow + lane : kChunks;
    load_chunk(h[j], from, index[j]);
  }
  if constexpr (kPrefetchesWeight) {
    JITNORM_UNROLL
    for (int j = 0; j < kChunksPerLane; ++j) load_chunk(w[j], a.weight, index[j]);
  }
#if JITNORM_PDL
  asm volatile("griddepcontrol.launch_dependents;");
#endif

  float sums[kChunksPerLane];
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) sums[j] = chunk_sum_of_squares(h[j]);
  const float rstd = reciprocal_rms(row_sum(sums, warp, lane), a.eps);

  const EncodeContext context = begin_row(a, is_row ? row : 0);
  JITNORM_UNROLL
  for (int j = 0; j < kChunksPerLane; ++j) {
    if constexpr (kChunksPerLane > 4) forget_unpacked(h[j]);
    if constexpr (!kPrefetchesWeight) load_chunk(w[j], a.weight, index[j]);
    float y[kChunkSize];
    JITNORM_UNROLL
    for (int i = 0; i < kChunkSize; ++i) {
      y[i] = normalize(to_float(h[j].elements[i]), rstd, to_float(w[j].elements[i]));
    }
    encode_chunk(context, index[j], y);
  }
  if (is_row) end_row(context, thread);
}
