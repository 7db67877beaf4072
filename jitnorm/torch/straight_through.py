"""Norm + quantize for training that takes quantization into account: its gradient is the norm's, straight through."""

from __future__ import annotations

from typing import Any

import torch

from jitnorm.interop import framework_of
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.backward import gemma_rmsnorm_backward, rmsnorm_backward
from jitnorm.ops.dequantize import dequantize
from jitnorm.ops.general import norm_quantize


def fake_norm_quantize(
    x: torch.Tensor, weight: torch.Tensor, spec: QuantSpec, eps: float = 1e-6, *, unit_bias: bool = False, **scales: Any
) -> torch.Tensor:
    """Normalize and quantize as `jitnorm.norm_quantize` does, and return the values that the codes stand for.

    Its gradient is that of the norm, as if nothing had been quantized (the straight-through estimator of Bengio,
    Leonard and Courville, 2013).

    Args:
        x: float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        weight: shape (hidden_size,), the dtype of `x` or float32.
        spec: how to encode, such as ``jitnorm.MXFP8``.
        eps: added to the mean of squares.
        unit_bias: whether the weight is ``weight + 1``, as Gemma's.
        scales: `global_scale`, `scale` and `scale_ub` of `jitnorm.norm_quantize`.

    Returns:
        a tensor like `x`.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is no tensor of torch.

    Example:
        >>> import jitnorm
        >>> x, weight = torch.ones(2, 64, requires_grad=True), torch.ones(64, requires_grad=True)
        >>> y = fake_norm_quantize(x, weight, jitnorm.MXFP8)
        >>> y.sum().backward()
        >>> float(y[0, 0]), float(weight.grad[0])
        (1.0, 1.9999990463256836)
    """
    made: torch.Tensor = _FakeNormQuantize.apply(x, weight, spec, eps, unit_bias, scales)
    return made


class _FakeNormQuantize(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, spec: QuantSpec, eps: float, unit_bias: bool, scales: Any
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.unit_bias = eps, unit_bias
        q = norm_quantize(x, weight, spec=spec, eps=eps, unit_bias=unit_bias, **scales)
        made: torch.Tensor = dequantize(q, dtype=framework_of(x, "x").dtype_name(x))
        return made

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        backward = gemma_rmsnorm_backward if ctx.unit_bias else rmsnorm_backward
        x, weight = ctx.saved_tensors
        return *backward(grad.contiguous(), x, weight, ctx.eps), None, None, None, None
