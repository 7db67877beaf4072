// No block is encoded at less cost than any other.
struct OrdinaryBlock {};

JITNORM_INLINE OrdinaryBlock ordinary_block(float, GlobalScale) { return {}; }
JITNORM_INLINE bool is_ordinary(float, OrdinaryBlock) { return false; }
JITNORM_INLINE UInt32 encode_ordinary_block(CodeChunk&, const float (&)[kChunkSize], OrdinaryBlock) { return 0; }
