"""The bytes that a layer has to move outside of its matrix products and its attention, in FP8."""

from __future__ import annotations

from collections.abc import Callable

import torch

from llama.model import Shape

_SCALE = 4


def elementwise_bytes(shape: Shape, tokens: int) -> dict[str, int]:
    """What each fused step of a layer reads and writes once, for so many tokens.

    Activations are bfloat16, codes are FP8 with a float32 scale for each row; weights of norms and the rotary table are
    too small to count.
    """
    norm = 7 * shape.hidden + _SCALE  # reads two tensors, writes their sum and codes
    per_token = {
        "add, norm, encode": norm,
        "norm, rotate and insert heads": 4 * sum(shape.qkv_heads) * shape.head_size,
        "encode": 3 * shape.heads * shape.head_size + _SCALE,
        "add, norm, encode again": norm,
        "SwiGLU, encode": 5 * shape.intermediate + _SCALE,
    }
    return {step: count * tokens for step, count in per_token.items()}


def copies(shape: Shape, tokens: int, layers: int) -> Callable[[], None]:
    """Copies of these bytes by a kernel each, over buffers that layers share, as they share those of activations."""
    pairs = []
    for count in elementwise_bytes(shape, tokens).values():
        source = torch.zeros(count // 4, dtype=torch.bfloat16, device="cuda")
        pairs.append((source, torch.empty_like(source)))

    def run() -> None:
        for _ in range(layers):
            for source, copy in pairs:
                torch.neg(source, out=copy)  # copy_ could run on a copy engine

    return run
