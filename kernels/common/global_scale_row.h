// A global encode scale for each row, found; its inverse is stored.
JITNORM_INLINE float global_scale_of(const Arguments& a, Int64 row, float row_amax, bool is_writer) {
  const float scale = global_scale_from(row_amax);
  if (is_writer) a.row_scale[row] = decode_scale_from(row_amax, scale);
  return scale;
}
