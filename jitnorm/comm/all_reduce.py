"""The sum over ranks, with a residual, a norm and an encoding in the same launch."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from jitnorm.catalogue.all_reduce import ALL_REDUCE_NORM_QUANTIZE
from jitnorm.comm.views import copied
from jitnorm.comm.workspace import Workspace
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import check_shaped
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.ops.general import NO_OUTPUTS, quantized, with_scales
from jitnorm.ops.run import run

METHODS = ("auto", "one_shot", "two_shot", "sharded")


class Reduced(NamedTuple):
    """Results of `all_reduce_norm_quantize`.

    Attributes:
        out: the norm, as a tensor like the input or, with a `spec`, as a `QuantizedTensor`.
        residual_out: the sum with the residual, rounded to the input's dtype; None without a residual.
        norm: with `keep_norm` what `out` encodes, rounded to the input's dtype; otherwise None.
    """

    out: Any
    residual_out: Any
    norm: Any


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

    The sum is that of float32, in the order of ranks; docs/numerics.md defines every bit. All ranks make the same call,
    with inputs of their own and all other values alike. No input is written.

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
        unit_bias: whether 1 is added to the weight, as Gemma does.
        keep_norm: whether what is encoded is returned itself, too.
        scale_ub: as in `norm_quantize`.
        rounding: as in `norm_quantize`.
        round_sum: whether the sum over ranks is rounded to the input's dtype before anything else, as an all-reduce
            would give it: then the bits are those of this sum and `add_norm_quantize`, and many rows take less time.
            With False, the residual is added to the float32 sum.
        method: how rows come together, with the same bits. ``one_shot``: every rank gets those of all; up to
            `one_shot_rows` of the workspace. ``two_shot``: every rank gets those of some rows, and either encodes these
            for all or, with `round_sum`, tells the others the sum. ``sharded``: it encodes them for all, and of
            `residual_out` writes, and of `residual` reads, those rows alone: ``ceil(rows / ranks)`` from ``rank`` times
            as many on. ``auto``: ``one_shot`` if the rows are so few, else ``two_shot``. Where a rank encodes for all,
            outputs are in the workspace's window (all except a sharded residual), where the next such call overwrites
            them. With all but ``one_shot``, an input that is not in the window is copied there first.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `Reduced`.

    Raises:
        CommError: a rank failed in a call before.
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework, or one of JAX, or being traced.

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
    require_one_of("norm", norm, ("rmsnorm", "layernorm"))
    framework = check_shaped(input, "input")
    if framework.makes_calls_of((input,)):
        raise TypeError("input: is an array of JAX, or a tensor being traced; sums over ranks take plain tensors")
    shape = tuple(input.shape)
    workspace.admit(prod(shape[:-1]), shape[-1], framework.dtype_name(input))
    how = _method_of(method, prod(shape[:-1]), workspace)
    given = None
    if spec is not None:
        spec, given, scale = with_scales(spec, global_scale, scale)
    dispatcher = rounded_dispatcher(
        ALL_REDUCE_NORM_QUANTIZE, enable_pdl, rounding, how, workspace.ranks, norm, spec, residual is not None,
        unit_bias, bias is not None, keep_norm, scale_ub is not None, weight is not None,
        round_sum,
    )  # fmt: skip
    tensors = {
        **NO_OUTPUTS, "input": input, "workspace": workspace.control(input), "residual": residual, "weight": weight,
        "gemma": weight, "bias": bias, "beta": bias, "global_scale": given, "scale": scale, "scale_ub": scale_ub,
        "residual_out": None, "y_out": None, "eps": eps,
    }  # fmt: skip
    if how != "one_shot":
        tensors["input"] = _in_window(workspace, input, stream)
        if how == "sharded" or not round_sum:
            tensors.update(_outputs(workspace, dispatcher, tensors["input"], how))
    made = run(dispatcher, tensors, stream)
    if workspace.is_synchronous:
        workspace.check()
    out = made["out"] if spec is None else quantized(spec, made, shape)
    return Reduced(out, made["residual_out"], made["y_out"])


def _method_of(method: str, rows: int, workspace: Workspace) -> str:
    """How the rows of a call come together."""
    most = workspace.layout.rows
    if method == "auto":
        return "one_shot" if rows <= most else "two_shot"
    if method == "one_shot" and rows > most:
        raise ValueError(
            f"method: is 'one_shot', but the input has {rows} rows, and one_shot_rows of the workspace is {most}; "
            "use 'auto', or make one for more"
        )
    if method != "one_shot" and not workspace.layout.output_bytes:
        raise ValueError(
            f"method: is {method!r}, but the workspace has no room for outputs; make one with output_bytes"
        )
    return method


def _in_window(workspace: Workspace, input: Any, stream: Any) -> Any:
    """The input of a call whose rows ranks divide, as a tensor in the window."""
    if workspace.holds(input):
        return input
    if stream is not None:
        raise ValueError("input: is copied on the current stream, but another is given; use Workspace.empty")
    return copied(workspace.input_view(input, tuple(input.shape)), input)


def _outputs(workspace: Workspace, dispatcher: Dispatcher, input: Any, how: str) -> dict[str, Any]:
    """The outputs that a rank writes for all, as tensors in the window."""
    found = dispatcher.outputs.of([tuple(input.shape)], workspace.layout.dtype)
    if how == "sharded":
        del found["residual_out"]
    return workspace.outputs(input, found)
