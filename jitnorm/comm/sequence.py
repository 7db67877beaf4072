"""The two halves of a sum over ranks, for sequence parallelism: in between, each rank has a share of the rows."""

from __future__ import annotations

from typing import Any

from jitnorm.comm.calls import Reduced, admitted_shape, call, require_room, require_slots
from jitnorm.comm.workspace import Workspace
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of


def reduce_scatter_norm_quantize(
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
    """Sum inputs over ranks; each rank adds a residual to its share of the rows, normalizes and encodes them.

    Rank r owns ``ceil(rows / ranks)`` rows, starting at r times that number; the last ranks may own fewer, or none. Its
    results are the bits of these rows of `all_reduce_norm_quantize`, with scales placed by the layout of its own rows.
    All ranks make the same call. Inputs are not modified.

    Args:
        input: as in `all_reduce_norm_quantize`, with all rows. If it has more than two dimensions, ranks divide the
            first, which must be a multiple of their number.
        weight: as in `all_reduce_norm_quantize`, like all other arguments except the residual.
        workspace: that of this rank.
        spec: how to encode; None writes the norm in the input's dtype.
        norm: ``rmsnorm`` or ``layernorm``.
        residual: the residual of this rank's rows, or None; added to their sum.
        bias: added to the product with the weight.
        global_scale: as in `norm_quantize`, but not ``"tensor"``.
        scale: as in `norm_quantize`, but not ``"tensor"``.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight.
        keep_norm: whether the unencoded result is also returned.
        scale_ub: as in `norm_quantize`.
        rounding: as in `norm_quantize`.
        round_sum: whether the sum over ranks is rounded to the input's dtype before anything else.
        method: how each rank gets its rows of all inputs; it changes no bit. ``one_shot``: they are sent to it; for up
            to `one_shot_rows` of the workspace. ``two_shot``: it reads them in the workspace's window, into which the
            input is copied unless there; the workspace needs `output_bytes`. ``auto``: ``one_shot`` where possible.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `Reduced` for this rank's rows, in memory of their own.

    Raises:
        CommError: a rank failed in a call before.
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or one of JAX.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> from jitnorm.comm.threads import on_threads
        >>> def work(rank, exchange):
        ...     sizes = {"max_rows": 4, "hidden_size": 2, "dtype": "float16", "output_bytes": 4096}
        ...     workspace = Workspace.from_exchange(rank, 2, exchange, **sizes)
        ...     x, weight = np.float16([[1, 1], [2, 2]]), np.ones(2, np.float16)
        ...     return reduce_scatter_norm_quantize(x, weight, workspace, residual=x[:1]).residual_out.tolist()
        >>> on_threads(2, work)
        [[[3.0, 3.0]], [[5.0, 5.0]]]
    """
    require_one_of("method", method, ("auto", "one_shot", "two_shot"))
    rows, shape = admitted_shape(input, workspace)
    if method == "auto":
        method = "one_shot" if rows <= workspace.layout.rows else "two_shot"
    all_reduce = "one_shot_scatter" if method == "one_shot" else "reduce_scatter"
    if method == "one_shot":
        require_slots(workspace, rows)
    else:
        require_room(workspace, "input: is divided by the ranks")
    if len(shape) < 2 or (len(shape) > 2 and shape[0] % workspace.ranks):
        raise ValueError(
            f"input: shape is {shape}, of which {workspace.ranks} ranks cannot each have a part; pass a matrix, or "
            "more dimensions of which the first is a multiple of the ranks"
        )
    return call(
        workspace, all_reduce, input, weight, spec=spec, norm=norm, residual=residual, bias=bias,
        global_scale=global_scale, scale=scale, eps=eps, unit_bias=unit_bias, keep_norm=keep_norm, scale_ub=scale_ub,
        rounding=rounding, round_sum=round_sum, enable_pdl=enable_pdl, stream=stream,
    )  # fmt: skip


def norm_quantize_all_gather(
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
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Reduced:
    """Add a residual to each rank's rows, normalize and encode them, and gather the codes of all ranks on each.

    Results are the bits of `norm_quantize` of all ranks' rows, in the order of ranks. Codes and scales cross the links:
    2 to 4 times fewer bytes than the norm. All ranks make the same call, with the same number of rows. Inputs are not
    modified.

    Args:
        input: float16, bfloat16 or float32, shape (rows, hidden_size), anywhere on the device of the workspace; rows at
            any stride.
        weight: as in `all_reduce_norm_quantize`, like all that follows.
        workspace: that of this rank, with `output_bytes`, for the rows of all.
        spec: how to encode; None gathers the norm in the input's dtype.
        norm: ``rmsnorm`` or ``layernorm``.
        residual: like the input, or None; added to it.
        bias: added to the product with the weight.
        global_scale: as in `norm_quantize`, but not ``"tensor"``.
        scale: as in `norm_quantize`, but not ``"tensor"``.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight.
        keep_norm: whether the unencoded result is also returned.
        scale_ub: as in `norm_quantize`.
        rounding: as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `Reduced`: `out` of the rows of all ranks, (ranks * rows, hidden_size), in the workspace's window, where the
        next call with outputs there overwrites it; `residual_out` and `norm` of this rank's rows, in memory of its own.

    Raises:
        CommError: a rank failed in a call before.
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework, or one of JAX.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> from jitnorm.comm.threads import on_threads
        >>> def work(rank, exchange):
        ...     sizes = {"max_rows": 4, "hidden_size": 2, "dtype": "float16", "output_bytes": 4096}
        ...     workspace = Workspace.from_exchange(rank, 2, exchange, **sizes)
        ...     x, weight = np.full((1, 2), 1 - 2 * rank, np.float16), np.ones(2, np.float16)
        ...     return norm_quantize_all_gather(x, weight, workspace).out.tolist()
        >>> on_threads(2, work)
        [[[1.0, 1.0], [-1.0, -1.0]], [[1.0, 1.0], [-1.0, -1.0]]]
    """
    _, shape = admitted_shape(input, workspace, workspace.ranks)
    require_room(workspace, "out: has the rows of all ranks")
    if len(shape) != 2:
        raise ValueError(f"input: has {len(shape)} dimensions, but those that ranks gather have 2; reshape it")
    return call(
        workspace, "all_gather", input, weight, spec=spec, norm=norm, residual=residual, bias=bias,
        global_scale=global_scale, scale=scale, eps=eps, unit_bias=unit_bias, keep_norm=keep_norm, scale_ub=scale_ub,
        rounding=rounding, round_sum=False, enable_pdl=enable_pdl, stream=stream,
    )  # fmt: skip
