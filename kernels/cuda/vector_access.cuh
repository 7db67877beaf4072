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

// Chunks of a row that are whole; the one after them may hold a few elements, those past it none.
constexpr int kWholeChunks = kHiddenSize / kChunkSize;

// Element i of chunk `index` belongs to the row. Compare, do not clamp a length: ptxas 13.0 took the predicate of a
// clamping minimum (VIMNMX.RELU) for "the chunk is whole", and partial chunks read past their row.
JITNORM_INLINE bool is_in_row(int index, int i) { return kHasPartialChunk && index * kChunkSize + i < kHiddenSize; }

// Chunk `index` of the row at `row`; elements past the row are zero.
template <typename T, int kAccessBytes>
JITNORM_INLINE void load_chunk(Chunk<T, kAccessBytes>& chunk, const T* row, int index) {
  const T* from = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(chunk.accesses, from);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) chunk.elements[i] = is_in_row(index, i) ? from[i] : T{};
}

template <typename T, int kAccessBytes>
JITNORM_INLINE void store_chunk(T* row, int index, const Chunk<T, kAccessBytes>& chunk) {
  T* to = row + index * kChunkSize;
  if (index < kWholeChunks) {
    copy_words(to, chunk.accesses);
    return;
  }
  JITNORM_UNROLL
  for (int i = 0; i < kChunkSize; ++i) {
    if (is_in_row(index, i)) to[i] = chunk.elements[i];
  }
}

// Makes the compiler unpack the chunk anew where it is used next, rather than hold its floats until then: they take
// twice the registers of a 16-bit chunk, which long rows do not have.
template <typename T, int kAccessBytes>
JITNORM_INLINE void forget_unpacked(Chunk<T, kAccessBytes>& chunk) {
  JITNORM_UNROLL
  for (UInt32& word : chunk.words) asm volatile("" : "+r"(word));
}
