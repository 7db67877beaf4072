// FP8 with one scale for the tensor, given: a divisor.
typedef float Given;      // the scale, as it lies in memory
typedef float CallScale;  // its reciprocal

JITNORM_INLINE Given given_of(const Arguments& a) { return *a.scale; }
JITNORM_INLINE CallScale call_scale_of(const Arguments&, Given scale) { return computed(reciprocal_rn(scale)); }

JITNORM_INLINE float fp8_scale_of(const Arguments&, Int64, CallScale encode, float, bool) { return encode; }
JITNORM_INLINE float encode_scale_of(float encode) { return encode; }
