"""The operator for calls over ranks, ``torch.ops.jitnorm.all_reduce_norm_quantize``, which takes a workspace's name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from jitnorm.call_config import prototype
from jitnorm.catalogue.all_reduce import ALL_REDUCE_NORM_QUANTIZE
from jitnorm.comm.calls import admitted_shape, launch, own_part
from jitnorm.comm.workspace import Workspace, workspace_named
from jitnorm.dispatch import Dispatcher
from jitnorm.interop import check_gradient, check_passable
from jitnorm.kernels.all_reduce_rules import SCATTERED
from jitnorm.kernels.config import read_options
from jitnorm.outputs import Outputs
from jitnorm.torch import refusals
from jitnorm.torch.fakes import fake_outputs, with_bytes
from jitnorm.torch.schemas import config_text

_NAME = ALL_REDUCE_NORM_QUANTIZE.name
_INPUTS = ("input", "weight", "residual", "bias", "global_scale", "scale", "scale_ub")
_POSITIONAL = ("input", "weight", "eps", "workspace", *_INPUTS[2:])
SCHEMA = (
    f"{_NAME}(Tensor input, Tensor? weight, float eps, str workspace, Tensor? residual=None, Tensor? bias=None, "
    "Tensor? global_scale=None, Tensor? scale=None, Tensor? scale_ub=None, *, str config, bool? enable_pdl=None, "
    "bool is_fused=True) "
    "-> Tensor[]"
)
# The kernels' names for the parameters of a layer norm.
_OF_LAYERNORM = {"weight": "gemma", "bias": "beta"}


def define(library: torch.library.Library) -> None:
    """Register the operator."""
    library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        library.impl(_NAME, _run, device)
    for key in refusals.KEYS:
        library.impl(_NAME, refusals.refusing(_POSITIONAL), key)
    library.impl(_NAME, _without_gradients, "Autograd")
    torch.library.register_fake(f"jitnorm::{_NAME}", _fake, lib=library)


def call(
    workspace: str, dispatcher: Dispatcher, inputs: Mapping[str, Any], eps: float, is_fused: bool
) -> dict[str, Any]:
    """Make a call through the operator.

    Args:
        workspace: its name.
        dispatcher: for the options of the call.
        inputs: by name.
        eps: as of the call.
        is_fused: as of `comm.calls.launch`.

    Returns:
        inputs and outputs by name; those that the call does not have are None.
    """
    norm, options = dispatcher.options["op"], {k: v for k, v in dispatcher.options.items() if k != "op"}
    config = f"{norm}:{config_text(dispatcher.op, options)}"
    operator = torch.ops.jitnorm.all_reduce_norm_quantize.default
    results = operator(
        **inputs, eps=eps, workspace=workspace, config=config, enable_pdl=dispatcher.enable_pdl, is_fused=is_fused
    )
    made: dict[str, Any] = {"residual_out": None, "y_out": None, **inputs}
    made.update(zip(dispatcher.outputs.names, results, strict=True))
    if "y_fp4" in made and hasattr(torch, "float4_e2m1fn_x2"):
        made["y_fp4"] = made["y_fp4"].view(torch.float4_e2m1fn_x2)
    return made


@cache
def _dispatcher(config: str, enable_pdl: bool | None) -> Dispatcher:
    norm, _, options = config.partition(":")
    return Dispatcher(ALL_REDUCE_NORM_QUANTIZE, enable_pdl, {"op": norm, **read_options(options)})


@cache
def _outputs(dispatcher: Dispatcher) -> Outputs:
    return Outputs(with_bytes(dispatcher.op), dispatcher.options, prototype(dispatcher.options))


def _found(config: str, enable_pdl: bool | None, name: str, inputs: Mapping[str, Any]) -> tuple[Dispatcher, Workspace]:
    """The dispatcher and the workspace of a call, after checking it."""
    dispatcher, workspace = _dispatcher(config, enable_pdl), workspace_named(name)
    ranks = dispatcher.options.get("ranks")
    if ranks != workspace.ranks:
        raise ValueError(f"config: has ranks={ranks}, but the workspace is of {workspace.ranks}; pass that number")
    for each, tensor in inputs.items():
        if tensor is not None and not {each, _OF_LAYERNORM.get(each)}.intersection(dispatcher.names):
            raise ValueError(f"{each}: is given, but config={config!r} leaves no use for it; pass None")
    all_reduce = dispatcher.options["all_reduce"]
    admitted_shape(inputs["input"], workspace, workspace.ranks if all_reduce == "all_gather" else 1)
    return dispatcher, workspace


def _run(
    input: Any, weight: Any, eps: float, workspace: str, *others: Any, config: str, enable_pdl: bool | None = None,
    is_fused: bool = True, **named: Any,
) -> list[torch.Tensor]:  # fmt: skip
    """The outputs, copied out of the window, because programs do not know that the next call writes there."""
    inputs = _by_name(input, weight, others, named)
    dispatcher, own = _found(config, enable_pdl, workspace, inputs)
    made = launch(own, dispatcher, inputs, eps, None, is_fused)
    outputs = [made[name] for name in dispatcher.outputs.names]
    outputs = [each.clone() if own.holds(each) else each for each in outputs]
    return [each.view(torch.uint8) if each.dtype in _PACKED else each for each in outputs]


_PACKED = (torch.float4_e2m1fn_x2,) if hasattr(torch, "float4_e2m1fn_x2") else ()


def _fake(
    input: Any, weight: Any, eps: float, workspace: str, *others: Any, config: str, enable_pdl: bool | None = None,
    is_fused: bool = True, **named: Any,
) -> list[torch.Tensor]:  # fmt: skip
    """The outputs, without values."""
    inputs = _by_name(input, weight, others, named)
    dispatcher, own = _found(config, enable_pdl, workspace, inputs)
    scatters = dispatcher.options["all_reduce"] in SCATTERED
    leaders = {"input": own_part(own, input) if scatters else input, "whole": input}
    return list(fake_outputs(dispatcher, _outputs(dispatcher), leaders).values())


def _without_gradients(*given: Any, **named: Any) -> Any:
    """Make a call, unless autograd would record it."""
    inputs = {**dict(zip(_POSITIONAL, given, strict=False)), **named}
    for name in _INPUTS:
        if (tensor := inputs.get(name)) is not None:
            if refusals.are_in_parts((tensor,)):
                check_passable(tensor, name)
            check_gradient(tensor, name)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.jitnorm.all_reduce_norm_quantize.default(*given, **named)


def _by_name(input: Any, weight: Any, others: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a call, some of which may be omitted."""
    optional = {**dict(zip(_INPUTS[2:], others, strict=False)), **named}
    return {"input": input, "weight": weight, **{name: optional.get(name) for name in _INPUTS[2:]}}
