// What the normalize stages take from the arguments.
constexpr bool kNormalizes = true;

JITNORM_INLINE const Weight* weight_of(const Arguments& a) { return a.weight; }
JITNORM_INLINE const float* bias_of(const Arguments& a) { return a.bias; }
JITNORM_INLINE float eps_of(const Arguments& a) { return a.eps; }
JITNORM_INLINE float* inv_rms_of(const Arguments& a) { return a.inv_rms; }
