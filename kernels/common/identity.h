// No normalize stage: quantization alone.
constexpr bool kNormalizes = false;
constexpr bool kCenters = false;

JITNORM_INLINE const Weight* weight_of(const Arguments&) { return nullptr; }
JITNORM_INLINE const float* bias_of(const Arguments&) { return nullptr; }
JITNORM_INLINE float eps_of(const Arguments&) { return 0.0f; }
JITNORM_INLINE float* inv_rms_of(const Arguments&) { return nullptr; }

JITNORM_INLINE float factor_of(float w) { return w; }
JITNORM_INLINE float centered(float h, float) { return h; }

JITNORM_INLINE float normalize(float h, RowStatistic, float, float) { return h; }
