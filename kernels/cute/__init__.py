"""The stages of row-wise kernels in NVIDIA's CuTe-DSL; only `build` and what it imports import cutlass."""
