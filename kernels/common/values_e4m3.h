// Values of codes in E4M3.
constexpr int kCodeBits = 8;

JITNORM_INLINE float value_of_code(UInt32 code) { return to_float(Float8E4M3{(UInt8)code}); }
