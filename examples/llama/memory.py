"""How much memory of a GPU a cell needs, so that as many are prepared at once as fit."""

from __future__ import annotations

from llama.arms import Arm, Plain
from llama.measure import Cell
from llama.model import Shape

PROCESS = 1 << 30
"""Of a process, besides its tensors: the CUDA context, loaded kernels, libraries' handles."""
SPARE = 3 << 30
"""Of a GPU, for what is not counted."""

_BF16, _FLOAT32 = 2, 4
_ENCODING = 3 * _FLOAT32  # bytes of an element while plain torch encodes a matrix
_WORKSPACES = 256 << 20  # of matrix products and attention
_ROUNDING = 1.1  # of torch's allocator
_CAPTURED = 2  # a graph's memory is not trimmed while it is captured, and is taken twice at most


def bytes_to_prepare(cell: Cell, layers: int) -> int:
    """What preparing a cell takes: a pass in bfloat16, then the arm's, which takes no more.

    Args:
        cell: which.
        layers: how many are measured.
    """
    case, shape = cell.case, cell.shape
    cache = 2 * _BF16 * case.batch * case.length * shape.kv_heads * shape.head_size
    inputs_and_expected = 3 * _BF16 * shape.hidden * case.tokens
    error = 3 * _FLOAT32 * shape.hidden * case.tokens
    passing = max(_activations(shape) * case.tokens, error)
    held = layers * (_weights(shape, cell.arm) + cache) + inputs_and_expected
    return round(_ROUNDING * (held + max(passing, _encoding(shape, cell.arm)))) + _WORKSPACES


def bytes_to_measure(cell: Cell, layers: int) -> int:
    """What measuring a cell takes: its graph, and after that the model's ends or a copy of a layer's bytes."""
    ends = 2 * _BF16 * cell.shape.vocabulary * cell.shape.hidden + 3 * _BF16 * cell.shape.hidden * cell.case.tokens
    return _CAPTURED * max(bytes_to_prepare(cell, layers), ends)


def _matrices(shape: Shape) -> list[int]:
    """How many elements each matrix of a layer has."""
    attention = sum(shape.qkv_heads) + shape.heads
    return [shape.hidden * attention * shape.head_size, 2 * shape.hidden * shape.intermediate,
            shape.hidden * shape.intermediate]  # fmt: skip


def _weights(shape: Shape, arm: Arm) -> int:
    """Of a layer, in bfloat16 and as the arm has them."""
    return (_BF16 if arm.operations is Plain else _BF16 + 1) * sum(_matrices(shape))


def _encoding(shape: Shape, arm: Arm) -> int:
    """Of the largest matrix while it is encoded, before layers run."""
    return 0 if arm.operations is Plain else _ENCODING * max(_matrices(shape))


def _activations(shape: Shape) -> int:
    """Of a token, at the most, in plain bfloat16: where SwiGLU is, or where heads or a row are normalized."""
    residuals = 5 * _BF16 * shape.hidden  # a layer's input and output, and h
    queries = _BF16 * shape.heads * shape.head_size
    gates = 4 * _BF16 * shape.intermediate
    heads = _BF16 * sum(shape.qkv_heads) * shape.head_size + 8 * queries
    return residuals + max(gates + queries, heads, 3 * _FLOAT32 * shape.hidden + _BF16 * shape.hidden)
