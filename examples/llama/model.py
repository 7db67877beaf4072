"""A decoder of Llama's kind: its sizes, its weights and one layer of it, whose operations an arm chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """The sizes of a model.

    Attributes:
        name: of the published model.
        layers: how many layers it has.
        hidden: elements of a token between layers.
        heads: of queries.
        kv_heads: of keys and of values.
        head_size: elements of a head.
        intermediate: elements of a token within the MLP.
        vocabulary: how many tokens there are.
        theta: the base of the rotary embedding.
        eps: added to the mean of squares.
        has_head_norms: whether the heads of queries and keys are normalized, as in Qwen3.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    theta: float
    eps: float
    has_head_norms: bool

    @property
    def qkv_heads(self) -> list[int]:
        """The heads of queries, keys and values, which stand side by side."""
        return [self.heads, self.kv_heads, self.kv_heads]


LLAMA = Shape("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 5e5, 1e-5, False)
QWEN3 = Shape("Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936, 1e6, 1e-6, True)
TINY = Shape("tiny", 2, 64, 4, 2, 16, 64, 96, 1e4, 1e-5, False)
TINY_QWEN3 = replace(TINY, name="tiny-qwen3", has_head_norms=True)
SHAPES = {"llama": LLAMA, "qwen3": QWEN3, "tiny": TINY, "tiny-qwen3": TINY_QWEN3}


class LayerWeights(NamedTuple):
    """The weights of a layer; matrices are (outputs, inputs), or as an arm encodes them."""

    attention_norm: Tensor
    qkv: Any
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Any
    mlp_norm: Tensor
    gate_up: Any
    down: Any

    def encoded(self, encode: Callable[[Tensor], Any]) -> LayerWeights:
        """The same with matrices that are encoded."""
        return self._replace(**{name: encode(getattr(self, name)) for name in MATRICES})


MATRICES = ("qkv", "out", "gate_up", "down")


class Cache(NamedTuple):
    """The keys and values of a layer, each (sequences, length, heads, head size)."""

    keys: Tensor
    values: Tensor


class Places(NamedTuple):
    """Where the tokens of a step belong.

    Attributes:
        sequences: (tokens,), the sequence of each.
        positions: (tokens,), its place in it.
        slots: (tokens,), its row among those of the cache, taken one sequence after another.
        rotary: (length, head size), float32: of each position half a row cosines, then sines.
    """

    sequences: Tensor
    positions: Tensor
    slots: Tensor
    rotary: Tensor


class Operations(Protocol):
    """What an arm computes in its own way. `h` is what a linear takes: a tensor, or codes and scales."""

    shape: Shape

    def encoded_weight(self, weight: Tensor) -> Any:
        """A matrix as `linear` takes it."""

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Any, Tensor]:
        """``(h, x + residual)``, h the norm of the sum."""

    def linear(self, h: Any, weight: Any) -> Tensor:
        """The product with a weight."""

    def insert(self, qkv: Tensor, w: LayerWeights, cache: Cache, at: Places) -> Tensor:
        """The rotated queries, (tokens, heads, head size); keys and values go into the cache."""

    def encode(self, x: Tensor) -> Any:
        """``h`` of x."""

    def gate(self, x: Tensor) -> Any:
        """``h`` of SwiGLU of x."""


def layer(
    ops: Operations, w: LayerWeights, x: Tensor, residual: Tensor, cache: Cache, at: Places
) -> tuple[Tensor, Tensor]:
    """One layer.

    Args:
        ops: how to compute it.
        w: its weights.
        x: (tokens, hidden), what the layer before gives to the residual.
        residual: (tokens, hidden).
        cache: its keys and values, which the tokens' are inserted into.
        at: where the tokens belong.

    Returns:
        the next layer's ``(x, residual)``.
    """
    h, residual = ops.add_norm(x, residual, w.attention_norm)
    q = ops.insert(ops.linear(h, w.qkv), w, cache, at)
    x = ops.linear(ops.encode(attention(q, cache)), w.out)
    h, residual = ops.add_norm(x, residual, w.mlp_norm)
    return ops.linear(ops.gate(ops.linear(h, w.gate_up)), w.down), residual


def attention(q: Tensor, cache: Cache) -> Tensor:
    """Attention of queries, (tokens, heads, head size), to all that the cache holds: (tokens, heads * head size).

    Each sequence has as many tokens, which are its last ones: all of it in prefill, one in decode.
    """
    sequences, length = cache.keys.shape[:2]
    by_sequence = q.view(sequences, -1, *q.shape[1:]).transpose(1, 2)
    keys, values = cache.keys.transpose(1, 2), cache.values.transpose(1, 2)
    is_prefill = by_sequence.shape[2] == length
    y = torch.nn.functional.scaled_dot_product_attention(
        by_sequence, keys, values, is_causal=is_prefill, enable_gqa=True
    )
    return y.transpose(1, 2).reshape(q.shape[0], -1)


def random_weights(shape: Shape, device: str, dtype: torch.dtype = torch.bfloat16) -> LayerWeights:
    """The weights of a layer: matrices as they are initialized for training, norms near 1."""

    def matrix(outputs: int, inputs: int) -> Tensor:
        return torch.randn(outputs, inputs, device=device, dtype=dtype) * inputs**-0.5

    def norm(size: int) -> Tensor:
        return (1 + 0.1 * torch.randn(size, device=device)).to(dtype)

    def head_norm() -> Tensor | None:
        return norm(shape.head_size) if shape.has_head_norms else None

    return LayerWeights(
        attention_norm=norm(shape.hidden),
        qkv=matrix(sum(shape.qkv_heads) * shape.head_size, shape.hidden),
        q_norm=head_norm(),
        k_norm=head_norm(),
        out=matrix(shape.hidden, shape.heads * shape.head_size),
        mlp_norm=norm(shape.hidden),
        gate_up=matrix(2 * shape.intermediate, shape.hidden),
        down=matrix(shape.hidden, shape.intermediate),
    )


def places(shape: Shape, sequences: int, length: int, first: int, device: str) -> Places:
    """Where tokens belong whose sequences are known up to the position `first` and end at `length`."""
    positions = torch.arange(first, length, device=device).repeat(sequences)
    rows = torch.arange(sequences, device=device).repeat_interleave(length - first)
    frequencies = shape.theta ** (-torch.arange(0, shape.head_size, 2, device=device) / shape.head_size)
    angles = torch.arange(length, device=device)[:, None] * frequencies
    rotary = torch.cat([angles.cos(), angles.sin()], -1)
    return Places(rows, positions, rows * length + positions, rotary)


def empty_cache(shape: Shape, sequences: int, length: int, device: str, dtype: torch.dtype = torch.bfloat16) -> Cache:
    """A cache of zeros."""
    size = (sequences, length, shape.kv_heads, shape.head_size)
    return Cache(*(torch.zeros(size, device=device, dtype=dtype) for _ in range(2)))
