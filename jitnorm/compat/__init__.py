"""Other libraries' names for jitnorm's functions: an engine changes an import and nothing else.

`jitnorm.compat.flashinfer`, `jitnorm.compat.vllm` and `jitnorm.compat.sglang` have the signatures, return types,
in-place behaviour and roundings of these libraries, for torch tensors. docs/compatibility.md lists what they have.
"""
