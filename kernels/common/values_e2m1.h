// Values of codes in E2M1, two a byte, the first in the low nibble.
constexpr int kCodeBits = 4;

JITNORM_INLINE float value_of_code(UInt32 code) { return decode_e2m1(code); }
