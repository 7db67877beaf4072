// A kernel for any hidden size is told it at each call. Named as the constant that it is in others.
static thread_local int kInputSize;

JITNORM_INLINE void set_hidden_size(Int64 hidden_size) { kInputSize = (int)hidden_size; }
