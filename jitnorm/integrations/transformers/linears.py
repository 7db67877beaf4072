"""Linears that multiply quantized matrices, individually or as the three of a gated MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import scaled_mm

from jitnorm.integrations.transformers.formats import Format
from jitnorm.integrations.transformers.handing import codes_of
from jitnorm.integrations.transformers.mlp import GatedMlp
from jitnorm.integrations.transformers.replacement import Replacement
from jitnorm.ops.gated import silu_and_mul_quantize
from jitnorm.ops.general import quantize
from jitnorm.quantized import QuantizedTensor


class Matrix:
    """The weights of linears with the same input as one quantized matrix, which is updated when they change.

    Args:
        linears: the linears, whose outputs are concatenated.
        to: how their weights are encoded.
    """

    def __init__(self, linears: Sequence[torch.nn.Linear], to: Format) -> None:
        self.linears, self.to = tuple(linears), to
        self._encoded: QuantizedTensor | None = None
        self._bias: torch.Tensor | None = None
        self._seen: list[tuple[torch.Tensor, int, int]] = []

    def product(self, x: QuantizedTensor) -> torch.Tensor:
        """The outputs of the linears, bfloat16, for an encoded input."""
        weight, bias = self._current()
        if weight.data.device.type == "cpu":
            y = _decoded(x) @ _decoded(weight).t()
            y = (y if bias is None else y + bias.float()).bfloat16()
        else:
            a, b = x.scaled_mm_operand(), weight.scaled_mm_operand(is_weight=True)
            y = scaled_mm(
                a.matrix, b.matrix, a.scale, a.recipe, b.scale, b.recipe, a.swizzle, b.swizzle, bias, torch.bfloat16
            )
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def check(self, x: torch.Tensor) -> None:
        """Raise TypeError if the input's dtype differs from the weights', or gradients are recorded."""
        weight = self.linears[0].weight
        if x.dtype != weight.dtype:
            raise TypeError(f"input: dtype is {x.dtype}, expected {weight.dtype}, that of the weight")
        self.refuse_gradients(x)

    def refuse_gradients(self, *inputs: torch.Tensor) -> None:
        """Raise TypeError if gradients of inputs, or of any parameter, are recorded."""
        if torch.is_grad_enabled() and any(each.requires_grad for each in (*inputs, *self._parameters())):
            raise TypeError("input: quantized linears have no gradients; call the model under torch.no_grad()")

    def _parameters(self) -> list[torch.Tensor]:
        return [each for linear in self.linears for each in (linear.weight, linear.bias) if each is not None]

    @torch.compiler.disable(reason="weights may change")  # type: ignore[untyped-decorator]
    def _current(self) -> tuple[QuantizedTensor, torch.Tensor | None]:
        seen = [(each, each.data_ptr(), each._version) for each in self._parameters()]
        is_same = len(seen) == len(self._seen) and all(
            a[0] is b[0] and a[1:] == b[1:] for a, b in zip(seen, self._seen, strict=True)
        )
        if self._encoded is None or not is_same:
            self._encoded, self._bias, self._seen = self._encode(), self._joined_bias(), seen
        return self._encoded, self._bias

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _encode(self) -> QuantizedTensor:
        weight = torch.cat([linear.weight.detach() for linear in self.linears]).contiguous()
        self.to.check(weight.device)
        return quantize(weight, spec=self.to.spec, **self.to.scales)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _joined_bias(self) -> torch.Tensor | None:
        if all(linear.bias is None for linear in self.linears):
            return None
        parts = [
            linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
            for linear in self.linears
        ]
        return torch.cat(parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_encoded": None, "_bias": None, "_seen": []}  # copies encode separately


def _decoded(q: QuantizedTensor) -> torch.Tensor:
    rows: torch.Tensor = q.dequantize(dtype="float32")
    return rows.reshape(-1, rows.shape[-1])


class LinearForward(Replacement):
    """A linear whose input and weight are quantized.

    Args:
        module: the linear.
        to: the format.
    """

    def __init__(self, module: torch.nn.Linear, to: Format) -> None:
        super().__init__(module)
        self.to, self.matrix = to, Matrix([module], to)

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        """Multiply by the weight, and add the bias."""
        self.matrix.check(input)
        return self.matrix.product(codes_of(input, self.to))


class MlpForward(Replacement):
    """A gated MLP with quantized matrix products: gates and values are merged, and the activation is fused with
    encoding.

    Args:
        module: the MLP.
        parts: its linears and its activation.
        to: the format.
    """

    def __init__(self, module: torch.nn.Module, parts: GatedMlp, to: Format) -> None:
        super().__init__(module)
        self.parts, self.to = parts, to
        self.gates, self.down = Matrix(parts.gates, to), Matrix([parts.down], to)

    def __call__(self, *args: Any, **named: Any) -> torch.Tensor:
        """Compute the MLP of one tensor."""
        (x,) = (*args, *named.values())
        self.gates.check(x)
        self.down.refuse_gradients()
        h = self.gates.product(codes_of(x, self.to))
        q = silu_and_mul_quantize(
            h, spec=self.to.spec, activation=self.parts.activation, values_first=self.parts.values_first,
            rounding="hf", **self.to.scales,
        )  # fmt: skip
        return self.down.product(q)
