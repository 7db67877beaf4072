// FP8 with one scale for the tensor, found from the amax of another launch, and stored.
JITNORM_INLINE float fp8_scale_of(const Arguments& a, Int64 row, float, bool is_writer) {
  const float scale = fp8_scale_from(*a.amax);
  if (is_writer && row == 0) *a.tensor_scale = scale;
  return scale;
}
