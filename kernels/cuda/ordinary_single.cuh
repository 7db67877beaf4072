// A block with one possible scale.
typedef OrdinaryScale OrdinaryBlock;

JITNORM_INLINE OrdinaryBlock ordinary_block(float amax, GlobalScale global) { return ordinary_scale_of(amax, global); }

JITNORM_INLINE bool is_ordinary(float amax, OrdinaryBlock block) {
  return lies_within(mul_rn(amax, block.encode), kWordBound);
}

// Encodes it; the bits of its scale.
JITNORM_INLINE UInt32 encode_ordinary_block(CodeChunk& codes, const float (&y)[kChunkSize], OrdinaryBlock block) {
  JITNORM_UNROLL
  for (int i = 0; i < kCodeWords; ++i) codes.words[i] = encode_word<true>(y + kCodesPerWord * i, block.encode);
  return block.stored;
}
