// FP8 with one scale for the tensor, found from the amax of another launch, and stored.
typedef float Given;      // the amax
typedef float CallScale;  // the scale

JITNORM_INLINE Given given_of(const Arguments& a) { return *a.amax; }
JITNORM_INLINE CallScale call_scale_of(const Arguments&, Given amax) { return fp8_scale_from(amax); }

JITNORM_INLINE float fp8_scale_of(const Arguments& a, Int64 row, CallScale scale, float, bool is_writer) {
  if (is_writer && row == 0) *a.tensor_scale = scale;
  return scale;
}

JITNORM_INLINE float encode_scale_of(float scale) { return reciprocal_of_scale(scale); }
