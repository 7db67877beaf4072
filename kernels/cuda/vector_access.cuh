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

// Element i, widened. A bfloat16 is taken out of its word: by itself, the upper one of two takes an instruction more.
template <typename T, int kAccessBytes>
JITNORM_INLINE float value_of(const Chunk<T, kAccessBytes>& chunk, int i) {
  return to_float(chunk.elements[i]);
}

template <int kAccessBytes>
JITNORM_INLINE float value_of(const Chunk<BFloat16, kAccessBytes>& chunk, int i) {
  const UInt32 word = chunk.words[i / 2];
  return float_of(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}

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
