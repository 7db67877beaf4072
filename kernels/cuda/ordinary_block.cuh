// Blocks of ordinary values, which are nearly all: their codes need neither saturation nor those of special blocks.
struct OrdinaryScale {
  UInt32 stored;
  float decode;  // what codes are multiplied by to decode them
  float encode;  // codes are those of y * encode
};

// Above zero and below the bound; NaN is neither.
JITNORM_INLINE bool lies_within(float a, float bound) { return bits_of(a) - 1u < bits_of(bound) - 1u; }
