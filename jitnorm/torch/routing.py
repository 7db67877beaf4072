"""Turns a public function's call into a torch operator, if torch records calls or tensors are not plain memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from jitnorm.call_config import prototype
from jitnorm.dispatch import Dispatcher
from jitnorm.interop import check_tensors, framework_of
from jitnorm.ops.gradients import gradient_of
from jitnorm.outputs import Outputs
from jitnorm.torch import gradients
from jitnorm.torch.fakes import check_gradients, fake_outputs, with_bytes
from jitnorm.torch.schemas import config_text


def call(dispatcher: Dispatcher, tensors: tuple[Any, ...], numbers: tuple[float, ...]) -> tuple[Any, ...]:
    """Make a call through its operator.

    Args:
        dispatcher: the op's, for the options of the call.
        tensors: the call's tensors, in calling order; outputs may be None.
        numbers: the op's numbers.

    Returns:
        the tensors, with all outputs.
    """
    if any(type(tensor).__name__ == "DTensor" for tensor in tensors):
        from jitnorm.torch import distributed  # torch loads its own part only when it is used

        return distributed.call(dispatcher, tensors, numbers)
    named = dict(zip(dispatcher.arguments, (*tensors, *numbers), strict=True))
    is_differentiated = gradients.is_differentiated(tensors)
    if gradient_of(dispatcher.op) is None:
        check_gradients(dispatcher, named)
    else:
        _check_differentiable(dispatcher, tensors)
    operator = _operator(dispatcher)
    given = {name: named.pop(name) for name in dispatcher.outputs.names}
    missing = [name for name, tensor in given.items() if tensor is None]
    if dispatcher.outputs.updated and _is_transformed(tensors):
        raise TypeError(
            f"{dispatcher.outputs.updated[0]}: is written in part, which transforms of torch.func do not allow"
        )
    if len(missing) == len(given) or is_differentiated or _is_transformed(tensors):
        assert operator.functional is not None
        results = operator.functional(**named, **operator.options)
        made = dict(zip(given, (results,) if isinstance(results, torch.Tensor) else results, strict=True))
        for name, tensor in given.items():
            if tensor is not None:
                made[name] = _copied(name, made[name], tensor)
    else:
        made = fake_outputs(dispatcher, operator.outputs, named) if missing else {}
        made |= {name: tensor for name, tensor in given.items() if tensor is not None}
        operator.out(**named, **made, **operator.options)
    if operator.gives_fp4 and "y_fp4" in missing:
        made["y_fp4"] = made["y_fp4"].view(torch.float4_e2m1fn_x2)
    return dispatcher.in_order({**named, **made})[: dispatcher.tensor_count]


def _check_differentiable(dispatcher: Dispatcher, tensors: tuple[Any, ...]) -> None:
    """Reject tangents, and tensors that no kernel can read."""
    names, framework = dispatcher.names, framework_of(tensors[0], dispatcher.names[0])
    if not framework.makes_calls_of(tensors):
        with torch.no_grad():
            check_tensors(names, tensors, dispatcher.positions)
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is not None and (reason := framework.tangent_refusal(tensor)):
            raise TypeError(f"{name}: {reason}")


def _is_transformed(tensors: tuple[Any, ...]) -> bool:
    """Whether tensors are wrapped by torch.func, which only accepts operators that write nothing."""
    functorch = torch._C._functorch
    return any(
        tensor is not None and (functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor))
        for tensor in tensors
    )


def _copied(name: str, made: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Copy a result to `out`, which may have other dimensions and be bytes of the same size."""
    try:
        # torch before 2.12 cannot batch the view of bytes, even where the dtype stays.
        same = made if made.dtype == out.dtype else made.view(out.dtype)
        return out.copy_(same.reshape(out.shape))
    except RuntimeError as error:
        if gradients.is_differentiated((made, out)) and not _is_transformed((made, out)):
            raise  # autograd's own error, such as that for a parameter written in place
        raise TypeError(f"{name}: is used in a transform of torch.func that cannot write it ({error})") from None


@dataclass(frozen=True)
class _Operator:
    """A dispatcher's calls as torch knows them.

    Attributes:
        functional: the overload that allocates its outputs; None if some are partly written.
        out: the overload that writes the caller's.
        options: the arguments of both for the dispatcher's options, and for parameters that it does not have.
        outputs: how the operator allocates.
        gives_fp4: whether its codes are bytes that the function views as their own dtype.
    """

    functional: Callable[..., Any] | None
    out: Callable[..., Any]
    options: dict[str, Any]
    outputs: Outputs
    gives_fp4: bool


@cache
def _operator(dispatcher: Dispatcher) -> _Operator:
    op, fields = dispatcher.op, dispatcher.options
    packet = getattr(torch.ops.jitnorm, op.name)
    is_amax = op.finds_amax and fields.get("amax_parts")
    functional, out = (packet.amax, packet.amax_out) if is_amax else (getattr(packet, "default", None), packet.out)
    example = prototype(fields)
    without = {
        argument.name: None
        for argument in (functional or out)._schema.arguments
        if not argument.has_default_value() and argument.name not in dispatcher.arguments
    }
    return _Operator(
        functional,
        out,
        {"config": config_text(op, fields), "enable_pdl": dispatcher.enable_pdl, **without},
        Outputs(with_bytes(op), fields, example),
        hasattr(torch, "float4_e2m1fn_x2") and "y_fp4" not in (op.allocated(example) if op.allocated else {}),
    )
