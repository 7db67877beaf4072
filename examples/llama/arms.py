"""The arms that are compared: how each computes what a layer consists of, and what torch.compile sees of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

import jitnorm.torch
from jitnorm import QuantSpec
from llama.model import Cache, LayerWeights, Places, Shape, layer
from llama.products import fp8_product


class Plain:
    """Operations in plain torch, in the dtype of the weights, rounded as Transformers rounds them.

    Args:
        shape: the sizes of the model.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def encoded_weight(self, weight: Tensor) -> Any:
        """The weight."""
        return weight

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Any, Tensor]:
        """The norm of the sum, and the sum."""
        residual = x + residual
        return self._norm(residual, weight), residual

    def linear(self, h: Any, weight: Any) -> Tensor:
        """The product with a weight."""
        return torch.nn.functional.linear(h, weight)

    def insert(self, qkv: Tensor, w: LayerWeights, cache: Cache, at: Places) -> Tensor:
        """Normalize, rotate and insert."""
        q, k, v = self.heads(qkv)
        if w.q_norm is not None and w.k_norm is not None:
            q, k = self._norm(q, w.q_norm), self._norm(k, w.k_norm)
        cos, sin = at.rotary[at.positions].to(q.dtype)[:, None].chunk(2, -1)
        cache.keys[at.sequences, at.positions] = _rotated(k, cos, sin)
        cache.values[at.sequences, at.positions] = v
        return _rotated(q, cos, sin)

    def encode(self, x: Tensor) -> Any:
        """The same."""
        return x

    def gate(self, x: Tensor) -> Any:
        """SwiGLU."""
        gates, values = x.chunk(2, -1)
        return torch.nn.functional.silu(gates) * values

    def heads(self, qkv: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, (tokens, heads, head size)."""
        heads: tuple[Tensor, ...] = qkv.view(len(qkv), -1, self.shape.head_size).split(self.shape.qkv_heads, 1)
        return heads

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        h = x.float()
        return weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.shape.eps)).to(x.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Fp8Operand(NamedTuple):
    """A matrix in FP8 with a scale for each row or, of a transposed weight, for each column."""

    matrix: Tensor
    scale: Tensor


class Fp8(Plain):
    """Linears in FP8 in plain torch, with a scale for each row; a compiler fuses the encoding with others."""

    def encoded_weight(self, weight: Tensor) -> Any:
        """The codes and scales, transposed."""
        codes, scale = fp8_rows(weight)
        return Fp8Operand(codes.t(), scale.t())

    def linear(self, h: Any, weight: Any) -> Tensor:
        """The product of codes."""
        return fp8_product(*fp8_rows(h), weight.matrix, weight.scale)


def fp8_rows(x: Tensor) -> Fp8Operand:
    """Encode rows in FP8, by jitnorm's formula: bits are equal but for the roundings of `jitnorm.torch.fuse`."""
    scale = (x.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1 / (512 * 448))
    return Fp8Operand((x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale)


class Torchao(Plain):
    """Linears that torchao quantizes as they are called: FP8 with a scale for each row."""

    def encoded_weight(self, weight: Tensor) -> Any:
        """A tensor of torchao's, whose product with a weight encodes the other side."""
        from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, quantize_

        linear = torch.nn.Linear(*reversed(weight.shape), bias=False, device="meta")
        linear.weight = torch.nn.Parameter(weight, requires_grad=False)
        quantize_(linear, Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()))
        return linear.weight


class Jitnorm(Plain):
    """Linears in FP8 whose inputs jitnorm encodes: with the norm, with SwiGLU, or alone; heads in one launch."""

    spec: QuantSpec = jitnorm.FP8_TOKEN
    scales: Mapping[str, Any] = MappingProxyType({})  # how one of the tensor is found, in formats that have one

    def encoded_weight(self, weight: Tensor) -> Any:
        """The second operand of a product."""
        return jitnorm.quantize(weight, spec=self.spec, **self.scales).scaled_mm_operand(is_weight=True)

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Any, Tensor]:
        """The norm of the sum in FP8, and the sum, in one launch."""
        eps = self.shape.eps
        q, total = jitnorm.add_norm_quantize(x, residual, weight, spec=self.spec, eps=eps, **self.scales)
        return q, total

    def linear(self, h: Any, weight: Any) -> Tensor:
        """The product of codes."""
        a = h.scaled_mm_operand()
        return fp8_product(a.matrix, a.scale[0], weight.matrix, weight.scale[0])

    def insert(self, qkv: Tensor, w: LayerWeights, cache: Cache, at: Places) -> Tensor:
        """Normalize, rotate and insert in one launch."""
        q, k, v = self.heads(qkv)
        places = at.rotary, at.positions, at.slots, cache.keys, cache.values
        if w.q_norm is None:
            q, _, _ = jitnorm.rope_cache(q, k, v, *places)
        else:
            q, _, _ = jitnorm.qk_rmsnorm_rope_cache(q, k, v, w.q_norm, w.k_norm, *places, self.shape.eps)
        return q

    def encode(self, x: Tensor) -> Any:
        """Rows in FP8."""
        return jitnorm.quantize(x, spec=self.spec, **self.scales)

    def gate(self, x: Tensor) -> Any:
        """SwiGLU in FP8, in one launch."""
        return jitnorm.silu_and_mul_quantize(x, spec=self.spec, **self.scales)


Layer = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Arm:
    """One way to run a model.

    Attributes:
        name: in options and results.
        title: in tables.
        operations: its kind of operations.
        is_compiled: whether torch.compile sees whole layers.
        seconds: how long preparing a cell of it takes, roughly; the longest are begun first.
        is_fused: whether it gets the options of `jitnorm.torch.fuse`.
    """

    name: str
    title: str
    operations: type[Plain]
    is_compiled: bool
    seconds: float
    is_fused: bool = False

    def prepared(self, shape: Shape, backend: str) -> tuple[Plain, Layer]:
        """The operations and a layer of them, which torch.compile compiles at its first call, if at all."""
        ops = self.operations(shape)
        if not self.is_compiled:
            return ops, partial(layer, ops)
        torch._dynamo.config.recompile_limit = _PROGRAMS
        options = {"options": jitnorm.torch.fuse()} if self.is_fused else {}
        compiled = torch.compile(layer, fullgraph=True, dynamic=False, backend=backend, **options)
        return ops, partial(compiled, ops)


_PROGRAMS = 128  # that torch keeps of a layer; more than there are cells, as they all compile the same function

# The first are measured first.
ARMS = {
    each.name: each
    for each in (
        Arm("fp8-jitnorm", "FP8, jitnorm", Jitnorm, False, 15),
        Arm("bf16-compiled", "bf16, compiled", Plain, True, 30),
        Arm("fp8-compiled", "FP8, compiled", Fp8, True, 30),
        Arm("fp8-jitnorm-compiled", "FP8, jitnorm, compiled", Jitnorm, True, 40),
        Arm("fp8-torchao", "FP8 of torchao, compiled", Torchao, True, 45),
        Arm("bf16", "bf16", Plain, False, 5),
        Arm("fp8-fused", "FP8, compiled with jitnorm.torch.fuse", Fp8, True, 45, True),
    )
}


def default_arms(device: str) -> list[str]:
    """The arms that are compared unless others are asked for: torchao's where it is installed."""
    has_torchao = device == "cuda" and find_spec("torchao") is not None
    return [name for name in ARMS if name != "fp8-fused" and (name != "fp8-torchao" or has_torchao)]
