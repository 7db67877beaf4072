"""FlashInfer's packing of MLA's keys and values in FP8."""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, given_spec

_BACKENDS = ("auto", "specialized", "cake")


def concat_mla_kv_quant_fp8(
    kv_nope: torch.Tensor,
    k_pe: torch.Tensor,
    key: torch.Tensor | None = None,
    value: torch.Tensor | None = None,
    *,
    nope_dim: int = 128,
    backend: str = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys, of their own elements and of rotated ones that all heads share, and values, in E4M3 without a scale.

    Each of the three is encoded in its own launch, and torch copies the rotated elements to all heads.

    Args:
        kv_nope: own elements of keys, then values, (tokens, heads, nope_dim + v_dim).
        k_pe: rotated elements, (tokens, rope_dim) or (tokens, 1, rope_dim).
        key: where to write, float8_e4m3fn (tokens, heads, nope_dim + rope_dim); None allocates.
        value: where to write, float8_e4m3fn (tokens, heads, v_dim); None allocates.
        nope_dim: own elements of a key.
        backend: ``"auto"``, ``"specialized"`` or ``"cake"``; changes nothing.

    Returns:
        ``(key, value)``.
    """
    if backend not in _BACKENDS:
        raise ValueError(f"backend: is {backend!r}; allowed are {', '.join(_BACKENDS)}")
    if kv_nope.ndim != 3 or not 0 < nope_dim < kv_nope.shape[-1]:
        raise ValueError(f"kv_nope: shape is {tuple(kv_nope.shape)}; expected (tokens, heads, more than {nope_dim})")
    tokens, heads, size = kv_nope.shape
    if k_pe.shape[:-1] not in ((tokens,), (tokens, 1)):
        raise ValueError(
            f"k_pe: shape is {tuple(k_pe.shape)}; expected ({tokens}, rope_dim) or ({tokens}, 1, rope_dim)"
        )
    turned = k_pe.view(tokens, 1, k_pe.shape[-1])
    shapes = (tokens, heads, nope_dim + turned.shape[-1]), (tokens, heads, size - nope_dim)
    key, value = (
        kv_nope.new_empty(shape, dtype=torch.float8_e4m3fn) if out is None else out
        for out, shape in zip((key, value), shapes, strict=True)
    )
    for name, out, shape in (("key", key, shapes[0]), ("value", value, shapes[1])):
        if out.shape != shape or out.dtype != torch.float8_e4m3fn:
            raise ValueError(
                f"{name}: is {out.dtype} of shape {tuple(out.shape)}; expected float8_e4m3fn of shape {shape}"
            )
    _encode(kv_nope[..., :nope_dim], key[..., :nope_dim])
    _encode(kv_nope[..., nope_dim:], value)
    key.view(torch.uint8)[..., nope_dim:] = _encode(turned).view(torch.uint8)
    return key, value


def _encode(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return jitnorm.quantize(x, spec=given_spec("e4m3", "tensor"), scale=as_scale(1.0, x), out=out).data
