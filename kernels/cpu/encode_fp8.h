// The encode stage of FP8 with one scale for the tensor, given, or for the row, found.
JITNORM_INLINE void encode_row(const Arguments& a, Int64 row, const float* y) {
  UInt8* codes = a.codes + row_offset(row, a.extents, a.codes_strides);
  const float row_amax = kNeedsRowAmax ? row_max(y, kHiddenSize) : 0.0f;
  const float encode = reciprocal_rn(fp8_scale_of(a, row, row_amax, true));
  for (int i = 0; i < kHiddenSize; ++i) codes[i] = (UInt8)encode_code(y[i], encode);
}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
