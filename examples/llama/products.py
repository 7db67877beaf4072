"""The matrix product of FP8 codes, with a scale for each row and each column, that all FP8 arms but torchao's share."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

if find_spec("triton") is not None:
    from llama.gemv import fp8_gemv


def fp8_product(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """The product in bfloat16: torch's, but of a single token, which that takes longer for than bfloat16's.

    Args:
        a: (tokens, inputs) codes.
        a_scale: (tokens, 1), of its rows.
        b: (inputs, outputs) codes, a transposed weight.
        b_scale: (1, outputs), of its columns.
    """
    if len(a) == 1 and a.is_cuda:
        return fp8_gemv(a, a_scale, b, b_scale)
    return torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=torch.bfloat16, use_fast_accum=True)
