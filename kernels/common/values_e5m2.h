// Values of codes in E5M2, which are the upper bytes of float16.
constexpr int kCodeBits = 8;

JITNORM_INLINE float value_of_code(UInt32 code) { return to_float(Float16{(UInt16)(code << 8)}); }
