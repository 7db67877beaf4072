"""Hyper-connections (mHC): the streams before and after a layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jitnorm.catalogue.mhc import MHC_POST, MHC_PRE, MHC_PRE_WITH_PRENORM
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.interop import framework_of
from jitnorm.interop.dynamo import replace_in_graphs
from jitnorm.interop.taken import Merged
from jitnorm.kernels.config_rules import MAX_STREAMS
from jitnorm.kernels.mhc_rules import MAX_SINKHORN
from jitnorm.ops.forms import Form, Known, Shape, text_of

_PRE = Form(
    "residual dot_mix mhc_scale mhc_base sqrsum k post_mix comb_mix out eps pre_eps sinkhorn_eps post_factor",
    "({post_mix}, {comb_mix}, {out})",
    taken={"residual": Merged("residual")},
)


def _as_column(factors: Any, _: Any) -> Any:
    return framework_of(factors, "post_mix").reshaped(factors, (*factors.shape, 1))


def _as_contiguous(tensor: Any, _: Any) -> Any:
    return tensor.contiguous()


_PRE_OF_TORCH = replace(
    _PRE,
    views={"post_mix": _as_column},
    converted=dict.fromkeys(("dot_mix", "sqrsum", "mhc_scale", "mhc_base"), _as_contiguous),
)


def _as_streams(out: Any, residual: Any) -> Any:
    """A view of mixed streams with the shape of the given ones."""
    return framework_of(out, "out").reshaped(out, tuple(residual.shape))


_POST = Form(
    "residual x post_layer_mix comb_res_mix", "{out}", views={"out": _as_streams},
    taken={"residual": Merged("residual")},
)  # fmt: skip
_POST_OF_TORCH = replace(_POST, converted=dict.fromkeys(("x", "post_layer_mix", "comb_res_mix"), _as_contiguous))


def mhc_pre(
    residual: Any,
    dot_mix: Any,
    sqrsum: Any,
    mhc_scale: Any,
    mhc_base: Any,
    k: int | None = None,
    *,
    eps: float = 1e-6,
    pre_eps: float = 1e-6,
    sinkhorn_eps: float = 1e-6,
    post_factor: float = 1.0,
    sinkhorn_rounds: int = 20,
    post_mix: Any = None,
    comb_mix: Any = None,
    layer_input: Any = None,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """Mix the streams of hyper-connections (mHC) to a layer's input, by factors computed from their projections.

    The projections, divided by the root mean square of a token's streams, scaled and shifted, are logits. Those of
    `layer_input` and of `post_mix` go through a sigmoid; those of `comb_mix` become a nearly doubly stochastic matrix,
    by Sinkhorn and Knopp's algorithm. docs/numerics.md defines every bit. The formulas are those of Xie et al., "mHC:
    Manifold-Constrained Hyper-Connections" (2025). `mhc_post` takes the other factors.

    Args:
        residual: the streams, float16, bfloat16 or float32, shape (..., n, hidden_size), n of 1 to 4;
            (n, hidden_size) contiguous.
        dot_mix: projections of the streams, float32, shape (..., n * (2 + n)), contiguous: n for the layer's input, n
            for `post_mix`, n * n for `comb_mix`. Or partial sums of them, shape (splits, ..., n * (2 + n)), up to 64.
        sqrsum: sums of the squares of all streams, float32, shape (...), contiguous, or (splits, ...) likewise.
        mhc_scale: float32, shape (3,): of each of the three kinds of projections.
        mhc_base: float32, shape (n * (2 + n),).
        k: how many elements `sqrsum` sums; None for n * hidden_size.
        eps: added to the mean of squares.
        pre_eps: added to the factors of the layer's input.
        sinkhorn_eps: added to the softmax of rows of `comb_mix`, and to each sum that it is divided by.
        post_factor: multiplies the sigmoid of `post_mix`.
        sinkhorn_rounds: how often, 1 to 100, `comb_mix` is divided by the sums of columns, and in between by those of
            rows.
        post_mix: where to write the factors of the layer's output, float32, shape (..., n), contiguous; None allocates.
        comb_mix: where to write the mix after the layer, float32, shape (..., n, n), contiguous; None allocates.
        layer_input: where to write the mix, shape (..., hidden_size), the dtype of `residual`; None allocates.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(post_mix, comb_mix, layer_input)``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> streams, zeros = np.array([[[1, 2], [3, 4]]], np.float16), np.zeros((1, 8), np.float32)
        >>> ones = np.ones(3, np.float32)
        >>> post, comb, x = mhc_pre(streams, zeros, zeros[:, 0], ones, zeros[0])
        >>> x.tolist(), post.tolist()
        ([[2.0, 3.0]], [[0.5, 0.5]])
    """
    if k is not None and k < 1:
        raise ValueError(f"k: is {k}; expected a positive int, or None for n * hidden_size")
    made: tuple[Any, Any, Any] = _PRE_CALLS.call(
        residual, dot_mix, mhc_scale, mhc_base, sqrsum, k, post_mix, comb_mix, layer_input, eps, pre_eps, sinkhorn_eps,
        post_factor, stream, MHC_PRE, enable_pdl, sinkhorn_rounds, False, _splits_of(residual, dot_mix),
    )  # fmt: skip
    return made


def mhc_pre_with_prenorm(
    residual: Any,
    dot_mix: Any,
    mhc_scale: Any,
    mhc_base: Any,
    *,
    eps: float = 1e-6,
    pre_eps: float = 1e-6,
    sinkhorn_eps: float = 1e-6,
    post_factor: float = 1.0,
    sinkhorn_rounds: int = 20,
    post_mix: Any = None,
    comb_mix: Any = None,
    layer_input: Any = None,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> tuple[Any, Any, Any]:
    """`mhc_pre` that also computes the sum of the streams' squares, in the same launch.

    All arguments are those of `mhc_pre`; projections must not be partial sums.

    Example:
        >>> import numpy as np
        >>> streams, zeros = np.array([[[1, 2], [3, 4]]], np.float16), np.zeros((1, 8), np.float32)
        >>> post, comb, x = mhc_pre_with_prenorm(streams, zeros, np.ones(3, np.float32), zeros[0])
        >>> comb.round(3).tolist()  # slightly less, by `sinkhorn_eps`
        [[[0.5, 0.5], [0.5, 0.5]]]
    """
    made: tuple[Any, Any, Any] = _PRE_CALLS.call(
        residual, dot_mix, mhc_scale, mhc_base, None, None, post_mix, comb_mix, layer_input, eps, pre_eps, sinkhorn_eps,
        post_factor, stream, MHC_PRE_WITH_PRENORM, enable_pdl, sinkhorn_rounds, False,
    )  # fmt: skip
    return made


def mhc_pre_with_column(
    residual: Any, dot_mix: Any, sqrsum: Any, mhc_scale: Any, mhc_base: Any, k: int | None, splits: int, eps: float,
    pre_eps: float, sinkhorn_eps: float, post_factor: float, sinkhorn_rounds: int,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """`mhc_pre` of so many partial sums, or `mhc_pre_with_prenorm` without `sqrsum`; `post_mix` is (..., n, 1).

    The tensors are torch's, and all but the first may be at any strides.
    """
    op, counts = (MHC_PRE_WITH_PRENORM, ()) if sqrsum is None else (MHC_PRE, (splits,))
    made: tuple[Any, Any, Any] = _PRE_CALLS.call(
        residual, dot_mix, mhc_scale, mhc_base, sqrsum, k, None, None, None, eps, pre_eps, sinkhorn_eps, post_factor,
        None, op, None, sinkhorn_rounds, True, *counts,
    )  # fmt: skip
    return made


def _splits_of(residual: Any, dot_mix: Any) -> int:
    """The partial sums of each projection; any for what is no tensor."""
    try:
        return int(dot_mix.shape[0]) if dot_mix.ndim == residual.ndim else 1
    except (AttributeError, IndexError, RuntimeError):  # such as a nested tensor
        return 1


def _pre_calls(
    residual: Shape, _: Shape, has_k: bool, op: Op, enable_pdl: bool | None, sinkhorn_rounds: int, is_of_torch: bool,
    *splits: int,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    count, form = count_of_streams("residual", residual), _PRE_OF_TORCH if is_of_torch else _PRE
    if sinkhorn_rounds == 0:  # a configuration's word for other kernels; it checks all else
        raise ValueError(f"sinkhorn_rounds: is 0; expected an int from 1 to {MAX_SINKHORN}")
    if not has_k:
        form = replace(form, numbers={"k": count * (residual[-1] or 0)})
    return dispatcher_of(op, enable_pdl, count, sinkhorn_rounds, *splits), form


_PRE_CALLS = Known(
    _pre_calls,
    "residual@2 dot_mix@0 mhc_scale mhc_base sqrsum k? post_mix comb_mix out eps pre_eps sinkhorn_eps post_factor",
)


def mhc_post(
    x: Any,
    residual: Any,
    post_layer_mix: Any,
    comb_res_mix: Any,
    *,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Any:
    """Mix the streams of hyper-connections (mHC) after a layer, and add the layer's weighted output to each.

    Stream j becomes ``post_layer_mix[..., j] * x + sum(comb_res_mix[..., i, j] * residual[..., i, :])`` over the
    streams i, in float32, rounded once. The formula is that of Xie et al., "mHC: Manifold-Constrained
    Hyper-Connections" (2025).

    Args:
        x: the layer's output, float16, bfloat16 or float32, shape (..., hidden_size); rows at any stride.
        residual: the streams, of the same dtype, shape (..., n, hidden_size), n of 1 to 4; (n, hidden_size) contiguous.
        post_layer_mix: float32, shape (..., n), contiguous.
        comb_res_mix: float32, shape (..., n, n), contiguous: from stream i to stream j.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the streams, allocated, of the shape and dtype of `residual`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, streams = np.array([[1, 2]], np.float16), np.array([[[10, 20], [30, 40]]], np.float16)
        >>> swap = np.array([[[0, 1], [1, 0]]], np.float32)
        >>> mhc_post(x, streams, np.array([[1, 2]], np.float32), swap).tolist()
        [[[31.0, 42.0], [12.0, 24.0]]]
    """
    return _POST_CALLS.call(residual, x, post_layer_mix, comb_res_mix, stream, enable_pdl, None)


def mhc_post_of_torch(x: Any, residual: Any, post_layer_mix: Any, comb_res_mix: Any, streams: int) -> Any:
    """`mhc_post` of so many streams; the tensors are torch's, and all but the second may be at any strides."""
    return _POST_CALLS.call(residual, x, post_layer_mix, comb_res_mix, None, None, streams)


def _post_calls(residual: Shape, enable_pdl: bool | None, streams: int | None) -> tuple[Dispatcher, Form]:
    count = count_of_streams("residual", residual)
    if streams not in (None, count) or (streams and len(residual) < 3):
        raise ValueError(f"residual: shape is {text_of(residual)}; expected (..., {streams}, hidden_size)")
    return dispatcher_of(MHC_POST, enable_pdl, count), _POST_OF_TORCH if streams else _POST


_POST_CALLS = Known(_post_calls, "residual@2 x post_layer_mix comb_res_mix")


def count_of_streams(name: str, streams: Shape) -> int:
    """How many streams there are; ValueError if there cannot be as many."""
    count = streams[-2] if len(streams) > 1 else None
    if count is None or not 1 <= count <= MAX_STREAMS:
        raise ValueError(
            f"{name}: shape is {text_of(streams)}; expected (..., n, hidden_size) with n of 1 to {MAX_STREAMS}"
        )
    return count


replace_in_graphs((mhc_pre_with_column, mhc_post_of_torch))
