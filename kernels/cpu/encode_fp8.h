// The encode stage of FP8 with one scale for the tensor, given, or for the row, found.
struct RowEncoding {
  UInt8* to;
  float encode;
};

JITNORM_INLINE RowEncoding begin_row(const Arguments& a, Int64 row, float row_amax) {
  return {a.codes + row_offset(row, a.extents, a.codes_strides),
          encode_scale_of(fp8_scale_of(a, row, call_scale_of(a, given_of(a)), row_amax, true))};
}

JITNORM_INLINE void encode_tile(const Arguments&, Int64, int t, const Tile& y, RowEncoding encoding) {
  TileCodes codes;
  JITNORM_LANES
  for (int k = 0; k < kLanes; ++k) {
    float chunk[kChunkSize];
    take_chunk(y, k, chunk);
    JITNORM_UNROLL
    for (int w = 0; w < kChunkWords; ++w) {
      codes[k * kChunkWords + w] = encode_lane_word(chunk + w * kCodesPerWord, encoding.encode);
    }
  }
  store_codes(codes, t, encoding.to);
}

JITNORM_INLINE void write_padding_row(const Arguments&, Int64) {}
