// Values of codes in E4M3.
constexpr int kCodeBits = 8;

JITNORM_INLINE float value_of_code(UInt32 code) { return value_of_e4m3(code); }
