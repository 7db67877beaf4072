"""Hyper-connections (mHC): what their streams become behind a layer."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.mhc import MHC_POST
from jitnorm.dispatch import dispatcher_of
from jitnorm.interop import check_shaped, framework_of
from jitnorm.ops.run import run


def mhc_post(
    x: Any,
    residual: Any,
    post_layer_mix: Any,
    comb_res_mix: Any,
    *,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Any:
    """Mix the streams of hyper-connections (mHC) behind a layer, and add to each its part of what the layer gives.

    Stream j becomes ``post_layer_mix[..., j] * x + sum(comb_res_mix[..., i, j] * residual[..., i, :])`` over the
    streams i, in float32, rounded once. The formula is that of Xie et al., "mHC: Manifold-Constrained
    Hyper-Connections" (2025).

    Args:
        x: what the layer gives, float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        residual: the streams, of the same dtype, shape (..., n, hidden_size), n of 1 to 4; (n, hidden_size) contiguous.
        post_layer_mix: float32, shape (..., n), contiguous.
        comb_res_mix: float32, shape (..., n, n), contiguous: from stream i to stream j.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the streams, allocated, of the shape and dtype of `residual`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, streams = np.array([[1, 2]], np.float16), np.array([[[10, 20], [30, 40]]], np.float16)
        >>> swap = np.array([[[0, 1], [1, 0]]], np.float32)
        >>> mhc_post(x, streams, np.array([[1, 2]], np.float32), swap).tolist()
        [[[31.0, 42.0], [12.0, 24.0]]]
    """
    framework = check_shaped(residual, "residual")
    shape = tuple(residual.shape)
    if len(shape) < 2 or not 1 <= shape[-2] <= 4:
        raise ValueError(f"residual: shape is {shape}; expected (..., n, hidden_size) with n of 1 to 4")
    tensors = {
        "residual": framework.merge_last_two(residual), "x": x, "post_layer_mix": post_layer_mix,
        "comb_res_mix": comb_res_mix, "out": None,
    }  # fmt: skip
    out = run(dispatcher_of(MHC_POST, enable_pdl, int(shape[-2])), tensors, stream)["out"]
    return framework_of(out, "out").permuted(out, shape, tuple(range(len(shape))))
