// No normalize stage: quantization alone.
constexpr bool kNormalizes = false;

JITNORM_INLINE const Weight* weight_of(const Arguments&) { return nullptr; }
JITNORM_INLINE float reciprocal_rms(const Arguments&, float) { return 1.0f; }
JITNORM_INLINE float normalize(float h, float, float) { return h; }
