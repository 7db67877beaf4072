// A kernel for any hidden size is told it at each launch. Named as the constant that it is in others.
__shared__ int kInputSize;

JITNORM_INLINE void set_hidden_size(Int64 hidden_size) {
  if (threadIdx.x == 0) kInputSize = (int)hidden_size;
  __syncthreads();
}

#define kWholeChunks (kHiddenSize / kChunkSize)
