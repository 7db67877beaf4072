// A row belongs to one block, whose threads meet in its shared memory.
JITNORM_INLINE int thread_of_row() {
  if constexpr ((kThreadsPerRow & (kThreadsPerRow - 1)) == 0) return threadIdx.x % kThreadsPerRow;
  // The compiler does not know how many threads there are, and would divide.
  __builtin_assume(threadIdx.x < kThreadsPerRow);
  return threadIdx.x;
}

// The number of the block, or of the cluster of blocks, that has a row.
JITNORM_INLINE UInt32 row_block() { return blockIdx.x; }
JITNORM_INLINE UInt32 row_blocks() { return gridDim.x; }

JITNORM_INLINE void begin_sharing() {}

// Stores a value where all threads of the row will find it after the next barrier.
JITNORM_INLINE void share(float* slot, float value) { *slot = value; }

JITNORM_INLINE void row_barrier() { __syncthreads(); }
