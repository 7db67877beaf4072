"""Norms as torch modules, with the state dicts of torch's and Transformers' modules.

All but `NormQuant` have gradients; without `torch.no_grad` or `torch.inference_mode`, it raises TypeError.
"""

from __future__ import annotations

from typing import Any

import torch

from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.general import norm_quantize
from jitnorm.ops.layernorm import layernorm
from jitnorm.ops.norm import fused_add_rmsnorm, gemma_fused_add_rmsnorm, gemma_rmsnorm, rmsnorm
from jitnorm.quantized import QuantizedTensor


class RMSNorm(torch.nn.Module):  # type: ignore[misc]
    """`jitnorm.rmsnorm` as a module, with the state dict of `torch.nn.RMSNorm` and Transformers' ``LlamaRMSNorm``.

    Args:
        hidden_size: elements of a row.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as in Gemma; the initial weight is then zeros, otherwise ones.
        rounding: as in `jitnorm.rmsnorm` and `jitnorm.norm_quantize`; ``hf`` rounds like ``LlamaRMSNorm``.
        device: device of the weight.
        dtype: dtype of the weight, the inputs' or float32; None: torch's default.

    Example:
        >>> norm = RMSNorm(64, dtype=torch.bfloat16)
        >>> with torch.inference_mode():
        ...     y = norm(torch.full((2, 64), 3.0, dtype=torch.bfloat16))
        >>> float(y[0, 0])
        1.0
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *,
        unit_bias: bool = False,
        rounding: str = "once",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.eps, self.unit_bias, self.rounding = hidden_size, eps, unit_bias, rounding
        first = 0.0 if unit_bias else 1.0
        self.weight = torch.nn.Parameter(torch.full((hidden_size,), first, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of a tensor of shape (..., hidden_size)."""
        return (gemma_rmsnorm if self.unit_bias else rmsnorm)(x, self.weight, self.eps, rounding=self.rounding)

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        unit_bias = ", unit_bias=True" if self.unit_bias else ""
        rounding = f", rounding={self.rounding}" if self.rounding != "once" else ""
        return f"{self.hidden_size}, eps={self.eps}{unit_bias}{rounding}"


class FusedAddRMSNorm(RMSNorm):
    """`jitnorm.fused_add_rmsnorm` as a module; its arguments are those of `RMSNorm`.

    Example:
        >>> norm = FusedAddRMSNorm(64, dtype=torch.bfloat16)
        >>> x, residual = (torch.ones(2, 64, dtype=torch.bfloat16) for _ in range(2))
        >>> with torch.inference_mode():
        ...     y, total = norm(x, residual)
        >>> y is x, total is residual, float(total[0, 0])
        (True, True, 2.0)
    """

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        """Add `x` to the residual and normalize the sum, both in place.

        Returns:
            `x`, which is now the norm, and `residual`, which is now the sum.
        """
        add_norm = gemma_fused_add_rmsnorm if self.unit_bias else fused_add_rmsnorm
        add_norm(x, residual, self.weight, self.eps, rounding=self.rounding)
        return x, residual


class NormQuant(RMSNorm):
    """`jitnorm.norm_quantize` as a module.

    Args:
        hidden_size: elements of a row.
        spec: how to encode, such as ``jitnorm.MXFP8``.
        eps: added to the mean of squares.
        options: `unit_bias`, `rounding`, `device` and `dtype` of `RMSNorm`.

    Example:
        >>> import jitnorm
        >>> norm = NormQuant(64, jitnorm.MXFP8)
        >>> with torch.inference_mode():
        ...     q = norm(torch.ones(2, 64))
        >>> q.data.dtype
        torch.float8_e4m3fn
    """

    def __init__(self, hidden_size: int, spec: QuantSpec, eps: float = 1e-6, **options: Any) -> None:
        super().__init__(hidden_size, eps, **options)
        self.spec = spec

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None, **scales: Any) -> QuantizedTensor:
        """Normalize and quantize rows.

        Args:
            x: as the input of `jitnorm.norm_quantize`, shape (..., hidden_size).
            residual: added first, and becomes the sum; or None.
            scales: `global_scale`, `scale` and `scale_ub` of `jitnorm.norm_quantize`.

        Returns:
            the codes and scales.

        Raises:
            TypeError: gradients are recorded.
        """
        return norm_quantize(
            x, self.weight, spec=self.spec, residual=residual, eps=self.eps, unit_bias=self.unit_bias,
            rounding=self.rounding, **scales,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults, and the encoding."""
        return f"{super().extra_repr()}, spec={self.spec}"


class LayerNorm(torch.nn.Module):  # type: ignore[misc]
    """`jitnorm.layernorm` as a module, with the state dict of `torch.nn.LayerNorm`.

    Args:
        hidden_size: elements of a row.
        eps: added to the variance.
        device: device of the weight and the bias.
        dtype: dtype of the weight and the bias, the inputs' or float32; None: torch's default.

    Example:
        >>> norm = LayerNorm(2, eps=0.0)
        >>> with torch.inference_mode():
        ...     norm(torch.tensor([[1.0, 3.0]]))
        tensor([[-1.,  1.]])
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.hidden_size, self.eps = hidden_size, eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.zeros(hidden_size, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the rows of a tensor of shape (..., hidden_size)."""
        return layernorm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.hidden_size}, eps={self.eps}"
