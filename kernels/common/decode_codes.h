// What the codes of a block stand for.
struct DecodeContext {
  float scale, global_scale;
};

JITNORM_INLINE void decode_to(Output& to, UInt32 code, DecodeContext context) {
  round_to(undo_global_scale(mul_rn(value_of_code(code), context.scale), context.global_scale), to);
}

// Code i of those that begin at `codes`, `stride` bytes apart; bits above it are to be ignored.
JITNORM_INLINE UInt32 code_at(const UInt8* codes, int i, Int64 stride = 1) {
  return kCodeBits == 8 ? codes[i * stride] : codes[i / 2 * stride] >> (i % 2 * 4);
}
