// Chunks between memory and registers, in accesses as wide as the addresses allow.
template <int kBytes>
struct Access;
template <>
struct Access<16> {
  typedef uint4 Type;
};
template <>
struct Access<8> {
  typedef uint2 Type;
};
template <>
struct Access<4> {
  typedef UInt32 Type;
};
template <>
struct Access<2> {
  typedef UInt16 Type;
};
template <>
struct Access<1> {
  typedef UInt8 Type;
};

// A chunk in registers: its bytes, seen in whatever width an access has.
template <typename T, int kAccessBytes>
union alignas(16) Chunk {
  static constexpr int kBytes = kChunkSize * (int)sizeof(T);
  T elements[kChunkSize];
  UInt32 words[kBytes / 4];
  typename Access<kAccessBytes>::Type accesses[kBytes / kAccessBytes];
};

typedef Chunk<Input, kInputAccessBytes> InputChunk;
typedef Chunk<Weight, kWeightAccessBytes> WeightChunk;

template <typename Word, int kCount>
JITNORM_INLINE void copy_words(Word (&to)[kCount], const void* from) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) to[i] = static_cast<const Word*>(from)[i];
}

template <typename Word, int kCount>
JITNORM_INLINE void copy_words(void* to, const Word (&from)[kCount]) {
  JITNORM_UNROLL
  for (int i = 0; i < kCount; ++i) static_cast<Word*>(to)[i] = from[i];
}

// Elements of a row that chunk `index` holds: all but for the row's last chunk, and none past it.
JITNORM_INLINE int chunk_length(int index) {
  if (!kHasPartialChunk) return index < kChunks ? kChunkSize : 0;
  const int length = kHiddenSize - index * kChunkSize;
  return length < 0 ? 0 : length < kChunkSize ? length : kChunkSize;
}

// The chunk at `from`; elements past `length` are zero.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* from, int length) {
  if (length == kChunkSize) {
    copy_words(chunk.accesses, from);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = kHasPartialChunk && i < length ? from[i] : T{};
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* to, const Chunk<T, kAccessBytes>& chunk, int length) {
  if (length == kChunkSize) {
    copy_words(to, chunk.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (kHasPartialChunk && i < length) to[i] = chunk.elements[i];
  }
}

// Makes the compiler unpack the chunk anew where it is used next, rather than hold its floats until then: they take
// twice the registers of the chunk, which long rows do not have (at 65536 the compiler spilled 33 of them).
template <typename T, int kAccessBytes>
JITNORM_INLINE void forget_unpacked(Chunk<T, kAccessBytes>& chunk) {
  JITNORM_UNROLL
  for (UInt32& word : chunk.words) asm volatile("" : "+r"(word));
}
