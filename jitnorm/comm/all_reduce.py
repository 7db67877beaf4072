"""The sum over ranks, with a residual, a norm and an encoding in the same launch."""

from __future__ import annotations

from typing import Any

from jitnorm.comm.calls import Reduced, admitted_shape, call, require_room, require_slots
from jitnorm.comm.workspace import Workspace
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of

METHODS = ("auto", "one_shot", "two_shot", "not_fused", "sharded")


def all_reduce_norm_quantize(
    input: Any,
    weight: Any,
    workspace: Workspace,
    *,
    spec: QuantSpec | None = None,
    norm: str = "rmsnorm",
    residual: Any = None,
    bias: Any = None,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    unit_bias: bool = False,
    keep_norm: bool = False,
    scale_ub: Any = None,
    rounding: str = "once",
    round_sum: bool = True,
    method: str = "auto",
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Reduced:
    """Sum inputs over ranks, add a residual, normalize and encode: in one launch, with the same bits on every rank.

    Sums are computed in float32, in the order of ranks; docs/numerics.md defines every bit. All ranks make the same
    call, each with its own input and with the same values otherwise. Inputs are not modified.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), on the device of the workspace; rows at any
            stride.
        weight: as in `norm_quantize`; of ``layernorm``, float32.
        workspace: that of this rank.
        spec: how to encode, as in `norm_quantize`; None writes the norm in the input's dtype.
        norm: ``rmsnorm`` or ``layernorm``.
        residual: like the input, or None; added to the sum.
        bias: as in `norm_quantize`; of ``layernorm``, given with every weight.
        global_scale: as in `norm_quantize`, but not ``"tensor"``.
        scale: as in `norm_quantize`, but not ``"tensor"``.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as in Gemma.
        keep_norm: whether the unencoded result is also returned.
        scale_ub: as in `norm_quantize`.
        rounding: as in `norm_quantize`.
        round_sum: whether the sum over ranks is first rounded to the input's dtype, like that of an all-reduce: results
            are then those of this sum and `add_norm_quantize`, and many rows take less time. With False, the residual
            is added to the float32 sum.
        method: how the rows are summed; it changes no bit. ``one_shot``: every rank receives all inputs and sums all
            rows; for up to `one_shot_rows` of the workspace. ``two_shot``: every rank sums its share of the rows and
            either encodes them for all ranks or, with `round_sum`, sends the sums to the others. ``not_fused``: only
            the sum, followed by a second launch for the rest; requires `round_sum`. ``sharded``: every rank sums and
            encodes its share, but keeps its rows of the residual: it reads and writes only
            ``ceil(rows / ranks)`` rows of `residual` and `residual_out`, starting at ``rank`` times that number.
            ``auto``: with `round_sum`, the fastest of the first three according to `jitnorm tune-comm`; without
            measurements, ``one_shot`` up to `one_shot_rows` and ``two_shot`` above. Where ranks encode for each other,
            outputs are in the workspace's window (except a sharded residual), and the next such call overwrites them.
            All but ``one_shot`` first copy an input that is not in the window into it.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `Reduced`.

    Raises:
        CommError: a rank failed in a call before.
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or one of JAX.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> from jitnorm.comm.threads import on_threads
        >>> def work(rank, exchange):
        ...     workspace = Workspace.from_exchange(rank, 2, exchange, max_rows=4, hidden_size=2, dtype="float16")
        ...     x, weight = np.full((1, 2), 1 + rank, np.float16), np.ones(2, np.float16)
        ...     return all_reduce_norm_quantize(x, weight, workspace, residual=x).residual_out.tolist()
        >>> on_threads(2, work)
        [[[4.0, 4.0]], [[5.0, 5.0]]]
    """
    require_one_of("method", method, METHODS)
    rows, shape = admitted_shape(input, workspace)
    if method == "auto":
        method = workspace.method_of(rows, shape[-1], spec, round_sum)
    _require_method(method, rows, workspace, round_sum)
    all_reduce = "two_shot" if method == "not_fused" else method
    return call(
        workspace, all_reduce, input, weight, spec=spec, norm=norm, residual=residual,
        bias=bias, global_scale=global_scale, scale=scale, eps=eps, unit_bias=unit_bias, keep_norm=keep_norm,
        scale_ub=scale_ub, rounding=rounding, round_sum=round_sum, enable_pdl=enable_pdl, stream=stream,
        is_fused=method != "not_fused",
    )  # fmt: skip


def _require_method(method: str, rows: int, workspace: Workspace, round_sum: bool) -> None:
    """Raise ValueError if the rows of a call cannot be summed by this method."""
    if method == "one_shot":
        require_slots(workspace, rows)
    if method == "not_fused" and not round_sum:
        raise ValueError("round_sum: is False, but method is 'not_fused', which passes a rounded sum on; pass True")
    if method != "one_shot":
        require_room(workspace, f"method: is {method!r}")
