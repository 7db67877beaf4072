// The scale of a block, and what it makes of the block's codes.
struct BlockScale {
  UInt32 stored;  // the scale's bits
  float encode;   // codes are those of y * encode
  UInt32 keep;    // and-mask of the codes: none of a zero block
  UInt32 fill;    // or-mask of the codes: those of NaN in a block that holds one
};

JITNORM_INLINE BlockScale block_scale(UInt32 stored, float encode, bool is_zero, bool is_nan) {
  return {stored, encode, is_zero ? 0u : is_nan ? 0u : ~0u, is_nan ? kNaNCodes : 0u};
}
