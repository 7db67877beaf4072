// The combine stage of SwiGLU: a row is silu(gate) * value of an input with both.
JITNORM_INLINE void load_row(const Arguments& a, Int64 row, float* h) {
  const Input* from = a.input + row_offset(row, a.extents, a.input_strides);
  for (int i = 0; i < kHiddenSize; ++i) {
    const Input* gate = from + gate_position(i);
    h[i] = mul_rn(silu(to_float(gate[0])), to_float(gate[kGateColumns]));
  }
}
