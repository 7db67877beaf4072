// The combine stage of an FP8 tensor with a scale: a row is what is loaded times that, held as it is loaded.
struct HeldChunk {
  InputChunk codes;
  float scale;
};

struct RowSource {
  const Input* input;
  float scale;
};

JITNORM_INLINE RowSource source_of(const Arguments& a, Int64 row) {
  return {a.input + row_offset(row, a.extents, a.input_strides), input_scale(a)};
}

// Rows of codes may be longer than those of the input; a chunk past a row is zero, whatever the scale.
JITNORM_INLINE void load_held(HeldChunk& h, const RowSource& source, int index) {
  const bool is_padding = kInputSize < kHiddenSize && index >= kInputSize / kChunkSize;
  load_chunk(h.codes, source.input, is_padding ? kChunks : index);
  h.scale = is_padding ? 0.0f : source.scale;
}

JITNORM_INLINE float value_of(const HeldChunk& h, int i) { return rescaled(value_of(h.codes, i), h.scale); }
JITNORM_INLINE void forget_unpacked(HeldChunk& h) { forget_unpacked(h.codes); }
JITNORM_INLINE void store_sum(const RowSource&, const HeldChunk&, int) {}
