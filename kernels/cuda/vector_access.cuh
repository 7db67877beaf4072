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
