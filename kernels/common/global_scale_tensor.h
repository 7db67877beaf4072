// A global encode scale for the tensor, found from the amax of another launch; its inverse is stored.
typedef float Given;  // the amax

struct CallScale {
  float amax, scale;
  GlobalScale global;
};

JITNORM_INLINE Given given_of(const Arguments& a) { return *a.amax; }

JITNORM_INLINE CallScale call_scale_of(const Arguments& a, Given amax) {
  const float scale = global_scale_from(amax);
  return {amax, scale, prepare_global_scale(a, scale)};
}

JITNORM_INLINE GlobalScale global_scale_of(const Arguments& a, Int64 row, CallScale found, float, bool is_writer) {
  if (is_writer && row == 0) *a.tensor_scale = decode_scale_from(found.amax, found.scale);
  return found.global;
}
