// A global encode scale for the tensor, found from the amax of another launch; its inverse is stored.
JITNORM_INLINE float global_scale_of(const Arguments& a, Int64 row, float, bool is_writer) {
  const float amax = *a.amax;
  const float scale = global_scale_from(amax);
  if (is_writer && row == 0) *a.tensor_scale = decode_scale_from(amax, scale);
  return scale;
}
