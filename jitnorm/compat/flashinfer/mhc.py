"""The functions of `flashinfer.mhc`."""

from __future__ import annotations

import torch

from jitnorm.ops.mhc import mhc_post_of_torch, mhc_pre_with_column

__all__ = ["mhc_post", "mhc_pre_big_fuse", "mhc_pre_big_fuse_with_prenorm"]
_STREAMS = 4
_SPLITS = (1, 2, 4, 8, 16)
_MIXES = _STREAMS * (2 + _STREAMS)
_Mixes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def mhc_post(
    x: torch.Tensor, residual: torch.Tensor, post_layer_mix: torch.Tensor, comb_res_mix: torch.Tensor
) -> torch.Tensor:
    """The four streams after a layer: mixed, with its output added to each.

    Raises:
        ValueError: a shape that is not allowed.
    """
    if post_layer_mix.ndim == residual.ndim and post_layer_mix.shape == (*residual.shape[:-2], _STREAMS, 1):
        post_layer_mix = post_layer_mix.squeeze(-1)
    made: torch.Tensor = mhc_post_of_torch(x, residual.contiguous(), post_layer_mix, comb_res_mix, _STREAMS)
    return made


def mhc_pre_big_fuse(
    dot_mix: torch.Tensor,
    sqrsum: torch.Tensor,
    residual: torch.Tensor,
    mhc_scale: torch.Tensor,
    mhc_base: torch.Tensor,
    k: int,
    rms_eps: float = 1e-6,
    mhc_pre_eps: float = 1e-6,
    mhc_sinkhorn_eps: float = 1e-6,
    mhc_post_mult_value: float = 1.0,
    sinkhorn_repeat: int = 20,
    num_splits: int = 1,
    block_size: int = 0,
) -> _Mixes:
    """The four streams before a layer, mixed by factors computed from projections, and the factors after it.

    Args:
        dot_mix: projections, float32, (..., 24), or (num_splits, ..., 24) if `num_splits` is not 1.
        sqrsum: sums of the streams' squares, float32, (...), or (num_splits, ...).
        residual: the streams, (..., 4, H).
        mhc_scale: float32, (3,).
        mhc_base: float32, (24,).
        k: how many elements `sqrsum` sums.
        rms_eps: `eps` of `jitnorm.mhc_pre`; the next four are its next arguments, in order.
        mhc_pre_eps: likewise.
        mhc_sinkhorn_eps: likewise.
        mhc_post_mult_value: likewise.
        sinkhorn_repeat: likewise.
        num_splits: how many partial sums there are: 1, 2, 4, 8 or 16.
        block_size: a hint that changes no bit; ignored.

    Returns:
        ``(post_mix, comb_mix, layer_input)``: (..., 4, 1), (..., 4, 4) and (..., H).

    Raises:
        ValueError: a shape or an option that is not allowed.
    """
    if num_splits not in _SPLITS:
        raise ValueError(f"num_splits: is {num_splits}; allowed are {', '.join(map(str, _SPLITS))}")
    tokens = _tokens_of(residual)
    sums = tokens if num_splits == 1 else (num_splits, *tokens)
    if dot_mix.shape != (*sums, _MIXES) or sqrsum.shape != sums:
        _require_shape("dot_mix", dot_mix, (*sums, _MIXES))
        _require_shape("sqrsum", sqrsum, tuple(sums))
    _check_positive(rms_eps, mhc_pre_eps, mhc_sinkhorn_eps)
    return mhc_pre_with_column(
        residual.contiguous(), dot_mix, sqrsum, mhc_scale, mhc_base, k, num_splits, rms_eps, mhc_pre_eps,
        mhc_sinkhorn_eps, mhc_post_mult_value, sinkhorn_repeat,
    )  # fmt: skip


def mhc_pre_big_fuse_with_prenorm(
    dot_mix: torch.Tensor,
    residual: torch.Tensor,
    mhc_scale: torch.Tensor,
    mhc_base: torch.Tensor,
    rms_eps: float = 1e-6,
    mhc_pre_eps: float = 1e-6,
    mhc_sinkhorn_eps: float = 1e-6,
    mhc_post_mult_value: float = 1.0,
    sinkhorn_repeat: int = 20,
    block_size: int = 0,
) -> _Mixes:
    """`mhc_pre_big_fuse` that computes the sum of the streams' squares; `dot_mix` is (..., 24) or (1, ..., 24).

    Raises:
        ValueError: a shape or an option that is not allowed.
    """
    tokens = _tokens_of(residual)
    if dot_mix.shape != (1, *tokens, _MIXES):
        _require_shape("dot_mix", dot_mix, (*tokens, _MIXES))
    _check_positive(rms_eps, mhc_pre_eps, mhc_sinkhorn_eps)
    return mhc_pre_with_column(
        residual.contiguous(), dot_mix, None, mhc_scale, mhc_base, None, 1, rms_eps, mhc_pre_eps, mhc_sinkhorn_eps,
        mhc_post_mult_value, sinkhorn_repeat,
    )  # fmt: skip


def _tokens_of(residual: torch.Tensor) -> torch.Size:
    """The leading dimensions of the four streams."""
    shape = residual.shape
    if len(shape) < 3 or shape[-2] != _STREAMS:
        raise ValueError(f"residual: shape is {tuple(shape)}; expected (..., {_STREAMS}, H)")
    return shape[:-2]


def _require_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name}: shape is {tuple(tensor.shape)}; expected {shape}")


def _check_positive(rms_eps: float, pre_eps: float, sinkhorn_eps: float) -> None:
    if rms_eps > 0 and pre_eps > 0 and sinkhorn_eps > 0:
        return
    for name, value in (("rms_eps", rms_eps), ("mhc_pre_eps", pre_eps), ("mhc_sinkhorn_eps", sinkhorn_eps)):
        if not value > 0:
            raise ValueError(f"{name}: is {value}; it must be strictly positive")
