"""Calls over ranks of any kind: what is checked, and where their tensors are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple

from jitnorm.catalogue.all_reduce import ALL_REDUCE_NORM_QUANTIZE
from jitnorm.comm.views import copied
from jitnorm.comm.workspace import Workspace
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import check_shaped, framework_of
from jitnorm.kernels.all_reduce_rules import ALL_REDUCE, SCATTERED
from jitnorm.kernels.numerics import ceil_div
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.ops.general import quantized, with_scales
from jitnorm.ops.run import run

# All outputs that encodings may have; a call has some of them.
_NO_OUTPUTS: dict[str, Any] = dict.fromkeys(
    ("out", "y_fp4", "block_scale", "block_scale_unswizzled", "row_scale", "tensor_scale", "amax")
)
# Outputs that a rank keeps for itself where the others are in the windows of all.
_KEPT = {"two_shot": (), "sharded": ("residual_out",), "all_gather": ("residual_out", "y_out")}


class Reduced(NamedTuple):
    """Results of a call over ranks.

    Attributes:
        out: the norm, as a tensor like the input or, with a `spec`, as a `QuantizedTensor`.
        residual_out: the sum with the residual, rounded to the input's dtype; None without a residual.
        norm: with `keep_norm` what `out` encodes, rounded to the input's dtype; otherwise None.
    """

    out: Any
    residual_out: Any
    norm: Any


def admitted_shape(input: Any, workspace: Workspace, ranks: int = 1) -> tuple[int, tuple[int, ...]]:
    """The rows of a call and the shape of its input, if the workspace takes them.

    Args:
        input: as of the call.
        workspace: that of this rank.
        ranks: how many ranks have such rows.

    Raises:
        CommError: a rank failed in a call before.
        ValueError: the workspace is for other inputs.
        TypeError: `input` is not a tensor, or `workspace` not a Workspace.
    """
    framework = check_shaped(input, "input")
    if not isinstance(workspace, Workspace):
        raise TypeError(f"workspace: is {workspace!r}; expected a comm.Workspace")
    shape = tuple(input.shape)
    rows = prod(shape[:-1]) * ranks
    workspace.admit(rows, shape[-1], framework.dtype_name(input))
    return rows, shape


def require_room(workspace: Workspace, what: str) -> None:
    """Raise ValueError, which begins with `what`, if ranks cannot divide the rows of a workspace."""
    if not workspace.layout.output_bytes:
        raise ValueError(f"{what}, but the workspace has no room for outputs; make one with output_bytes")


def require_slots(workspace: Workspace, rows: int) -> None:
    """Raise ValueError if a call has more rows than the workspace has slots for."""
    most = workspace.layout.rows
    if rows > most:
        raise ValueError(
            f"method: is 'one_shot', but the input has {rows} rows, and one_shot_rows of the workspace is {most}; "
            "use 'auto', or make one for more"
        )


def call(
    workspace: Workspace, all_reduce: str, input: Any, weight: Any, *, spec: QuantSpec | None, norm: str, residual: Any,
    bias: Any, global_scale: Any, scale: Any, eps: float, unit_bias: bool, keep_norm: bool, scale_ub: Any,
    rounding: str, round_sum: bool, enable_pdl: bool | None, stream: Any, is_fused: bool = True,
) -> Reduced:  # fmt: skip
    """Make a call whose input is admitted.

    `all_reduce` is as in KernelConfig, and `is_fused` as in `launch`; the other arguments are those of
    `all_reduce_norm_quantize`.
    """
    require_one_of("norm", norm, ("rmsnorm", "layernorm"))
    given = None
    if spec is not None:
        spec, given, scale = with_scales(spec, global_scale, scale)
    dispatcher = rounded_dispatcher(
        ALL_REDUCE_NORM_QUANTIZE, enable_pdl, rounding, all_reduce, workspace.ranks, norm, spec, residual is not None,
        unit_bias, bias is not None, keep_norm, scale_ub is not None, weight is not None,
        round_sum,
    )  # fmt: skip
    inputs = {
        "input": input, "weight": weight, "residual": residual, "bias": bias, "global_scale": given, "scale": scale,
        "scale_ub": scale_ub,
    }  # fmt: skip
    framework = framework_of(input, "input")
    if framework.makes_calls_of((input,)):
        made = framework.call_over_ranks(workspace.name, dispatcher, inputs, eps, stream, is_fused)
    else:
        made = launch(workspace, dispatcher, inputs, eps, stream, is_fused)
    rows, *others = own_part(workspace, input).shape if all_reduce in SCATTERED else input.shape
    shape = (rows * (workspace.ranks if all_reduce == "all_gather" else 1), *others)
    out = made["out"] if spec is None else quantized(spec, made, shape)
    return Reduced(out, made["residual_out"], made["y_out"])


def launch(
    workspace: Workspace, dispatcher: Dispatcher, inputs: Mapping[str, Any], eps: float, stream: Any,
    is_fused: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Make a call of plain tensors.

    Args:
        workspace: that of this rank.
        dispatcher: for the options of the call.
        inputs: by the names that `all_reduce_norm_quantize` gives them.
        eps: as there.
        stream: as there.
        is_fused: whether one launch does everything; otherwise, which only rounded sums allow, a second launch follows
            that of the sum.

    Returns:
        all tensors of the call, by name; None for those that it does not use.
    """
    if not is_fused:
        sums, rest = unfused(dispatcher)
        total = launch(workspace, sums, {"input": inputs["input"]}, eps, stream)["out"]
        return run(rest, _tensors({**inputs, "input": total}, eps), stream)
    all_reduce, input = dispatcher.options["all_reduce"], inputs["input"]
    tensors = {**_tensors(inputs, eps), "whole": None, "workspace": workspace.control(input)}
    if all_reduce not in ("one_shot", "one_shot_scatter", "all_gather"):
        tensors["input"] = _in_window(workspace, input, stream)
    if all_reduce in SCATTERED:
        tensors["whole"] = tensors["input"]
        tensors["input"] = own_part(workspace, tensors["input"])
    if all_reduce in _KEPT and not (all_reduce == "two_shot" and dispatcher.options.get("rounds_sum")):
        tensors.update(_outputs(workspace, dispatcher, tensors["input"], _KEPT[all_reduce]))
    made = run(dispatcher, tensors, stream)
    if workspace.is_synchronous:
        workspace.check()
    return made


def _tensors(inputs: Mapping[str, Any], eps: float) -> dict[str, Any]:
    """The arguments of a norm by the names that kernels have for them."""
    parameters = {"gemma": inputs.get("weight"), "beta": inputs.get("bias")}
    return {**_NO_OUTPUTS, **inputs, **parameters, "residual_out": None, "y_out": None, "eps": eps}


@cache
def unfused(dispatcher: Dispatcher) -> tuple[Dispatcher, Dispatcher]:
    """The dispatchers of a sum over ranks, which each of them gets rounded, and of what follows the sum."""
    op, pdl, options = dispatcher.op, dispatcher.enable_pdl, dispatcher.options
    if options["all_reduce"] != "two_shot" or not options["rounds_sum"]:
        raise ValueError("is_fused: is False, which goes with all_reduce='two_shot' and rounds_sum=True alone")
    sums = {"op": "quantize", "all_reduce": "two_shot", "ranks": options["ranks"]}
    return Dispatcher(op, pdl, sums), Dispatcher(op, pdl, {k: v for k, v in options.items() if k not in ALL_REDUCE})


def own_part(workspace: Workspace, input: Any) -> Any:
    """The part of an input along the first dimension that is this rank's; the last ranks' may be smaller, or empty."""
    count = ceil_div(input.shape[0], workspace.ranks)
    return input[workspace.rank * count : (workspace.rank + 1) * count]


def _in_window(workspace: Workspace, input: Any, stream: Any) -> Any:
    """The input of a call that others read, as a tensor in the window."""
    if workspace.holds(input):
        return input
    if stream is not None:
        raise ValueError("input: is copied on the current stream, but another is given; use Workspace.empty")
    return copied(workspace.input_view(input, tuple(input.shape)), input)


def _outputs(workspace: Workspace, dispatcher: Dispatcher, input: Any, kept: tuple[str, ...]) -> dict[str, Any]:
    """The outputs that a rank writes for all, as tensors in the window; not those that it keeps."""
    found = dispatcher.outputs.of([tuple(input.shape)], workspace.layout.dtype)
    return workspace.outputs(input, {name: each for name, each in found.items() if name not in kept})
