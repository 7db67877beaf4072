"""jitnorm: JIT-compiled normalization and low-precision quantization, the same bits on every target."""
