// The scale of a block, and what it makes of the block's codes.
struct BlockScale {
  UInt32 byte;   // as stored
  float encode;  // codes are e2m1(y * encode)
  UInt32 keep;   // and-mask of the codes: none of a zero block
  UInt32 fill;   // or-mask of the codes: 7 in each nibble of a block that holds a NaN
};

constexpr UInt32 kRoundedSixth = 0x3e2aaaabu;  // the float nearest 1/6: 6 is the largest E2M1 value
constexpr UInt32 kNaNCodes = 0x77777777u;
