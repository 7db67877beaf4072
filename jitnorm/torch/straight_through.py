"""Norm and quantization for quantization-aware training, with the norm's gradient (a straight-through estimator)."""

from __future__ import annotations

from typing import Any

import torch

from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.backward import gemma_rmsnorm_backward, rmsnorm_backward
from jitnorm.ops.dequantize import dequantize
from jitnorm.ops.general import norm_quantize


def fake_norm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    spec: QuantSpec,
    eps: float = 1e-6,
    *,
    unit_bias: bool = False,
    global_scale: Any = None,
    scale: Any = None,
    scale_ub: Any = None,
    rounding: str = "once",
) -> torch.Tensor:
    """Normalize and quantize like `jitnorm.norm_quantize`, and return the decoded values.

    Its gradient is that of the norm, as if nothing had been quantized (the straight-through estimator of Bengio,
    Leonard and Courville, 2013).

    Args:
        x: float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        weight: shape (hidden_size,), the dtype of `x` or float32.
        spec: how to encode, such as ``jitnorm.MXFP8``.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as in Gemma.
        global_scale: as in `jitnorm.norm_quantize`; it has no gradient, nor have the next two.
        scale: likewise.
        scale_ub: likewise.
        rounding: as in `jitnorm.norm_quantize`; it does not change the gradient.

    Returns:
        a tensor like `x`.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is no tensor of torch, or a scale that requires grad while gradients are recorded.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import jitnorm
        >>> x, weight = torch.ones(2, 64, requires_grad=True), torch.ones(64, requires_grad=True)
        >>> y = fake_norm_quantize(x, weight, jitnorm.MXFP8)
        >>> y.sum().backward()
        >>> y[0, 0].item(), weight.grad[0].item()
        (1.0, 1.9999990463256836)
    """
    if torch.compiler.is_dynamo_compiling() and _is_transforming():
        raise TypeError(
            "x: is used in a transform of torch.func within torch.compile, which would leave out the gradient; "
            "transform what is compiled, or call it outside"
        )
    scales = {"global_scale": global_scale, "scale": scale, "scale_ub": scale_ub}
    for name, each in scales.items():
        if torch.is_grad_enabled() and isinstance(each, torch.Tensor) and each.requires_grad:
            raise TypeError(f"{name}: requires grad, and fake_norm_quantize has no gradient of it; pass `.detach()`")
    options = {"unit_bias": unit_bias, "rounding": rounding, **scales}
    made: torch.Tensor = _FakeNormQuantize.apply(x, weight, spec, eps, options)
    return made


def _is_transforming() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


vars(_is_transforming)["_dynamo_marked_constant"] = True  # Dynamo calls it, and transforms what it traces


class _FakeNormQuantize(torch.autograd.Function):  # type: ignore[misc]
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, spec: QuantSpec, eps: float, options: dict[str, Any]
    ) -> torch.Tensor:
        with torch.no_grad():  # a tracer may have enabled it here
            q = norm_quantize(x, weight, spec=spec, eps=eps, **options)
            made: torch.Tensor = dequantize(q, dtype=str(x.dtype).removeprefix("torch."))
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        x, weight, _, ctx.eps, options = inputs
        ctx.unit_bias = options["unit_bias"]
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needs_weight = ctx.needs_input_grad[1]
        found = _Once.apply(grad.contiguous(), *ctx.saved_tensors, ctx.eps, ctx.unit_bias, needs_weight)
        return *found, None, None, None


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """The backward, which raises an error if it is itself differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float, unit_bias: bool, needs_weight: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        function = gemma_rmsnorm_backward if unit_bias else rmsnorm_backward
        made: tuple[torch.Tensor, torch.Tensor | None] = function(grad, x, weight, eps, weight_grad=needs_weight)
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        raise RuntimeError("fake_norm_quantize has no second derivatives; compute the first ones without create_graph")
