"""A product of FP8 codes of one token with a weight, in Triton: all multiprocessors share the reading of the weight."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents

_OUTPUTS, _COLUMNS, _WARPS = 4, 2048, 4


@triton.jit  # type: ignore[untyped-decorator]
def fp8_gemv_kernel(  # type: ignore[no-untyped-def]
    a, a_scale, b, b_scale, out, inputs: tl.constexpr, outputs: tl.constexpr, columns: tl.constexpr
):
    """Some outputs of one program, which goes through so many columns of their rows of the weight at once.

    A kernel that follows with programmatic dependent launch, such as jitnorm's, starts while the last of the weight is
    read, and then waits for the outputs.
    """
    gdc_launch_dependents()
    rows = tl.program_id(0) * outputs + tl.arange(0, outputs)
    total = tl.zeros([outputs, columns], tl.float32)
    for first in range(0, inputs, columns):
        at = first + tl.arange(0, columns)
        is_there = at < inputs
        token = tl.load(a + at, mask=is_there, other=0.0)
        weight = tl.load(b + rows[:, None] * inputs + at[None, :], mask=is_there[None, :], other=0.0)
        total += weight.to(tl.float32) * token.to(tl.float32)[None, :]
    product = tl.sum(total, 1) * tl.load(b_scale + rows) * tl.load(a_scale)
    tl.store(out + rows, product.to(tl.bfloat16))


@torch.library.custom_op("llama::fp8_gemv", mutates_args=())  # type: ignore[untyped-decorator]
def fp8_gemv(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """The product in bfloat16, as `llama.products.fp8_product` of one token."""
    inputs, outputs = b.shape
    out = a.new_empty((1, outputs), dtype=torch.bfloat16)
    grid = (outputs // _OUTPUTS,)
    fp8_gemv_kernel[grid](a, a_scale, b, b_scale, out, inputs, _OUTPUTS, _COLUMNS, num_warps=_WARPS)
    return out


@fp8_gemv.register_fake  # type: ignore[untyped-decorator]
def _(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    return a.new_empty((1, b.shape[1]), dtype=torch.bfloat16)
