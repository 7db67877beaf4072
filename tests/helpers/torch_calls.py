"""One small call of each op with torch tensors, and the operators of ``torch.ops.jitnorm`` behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jitnorm.kernels.config import read_options
from torch.utils._python_dispatch import TorchDispatchMode

from jitnorm.bench.calls import call_of
from jitnorm.catalogue import OPS, op_of
from jitnorm.dispatch import Dispatcher

SIZE = 128
# A mask counts all rows of such a matrix and leaves no padding: what it leaves out is uninitialized.
ROWS, MASKED_ROWS = 2, 128
OperatorCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
# Ops that have no encoding of their own.
_CHOICES = {
    name: {"quant": "nvfp4"}
    for name, op in OPS.items()
    if op.choices.get("quant", "") is None and name not in ("rmsnorm", "layernorm")
}


def call(name: str, **choices: Any) -> Callable[[], Any]:
    """A call of an op's function, with the same values every time."""
    generator = torch.Generator().manual_seed(0)
    rows = MASKED_ROWS if op_of(name).fixed.get("masked") else ROWS

    def new(shape: tuple[int, ...], dtype: str, is_output: bool) -> Any:
        kind = getattr(torch, {"float4_e2m1fnx2": "uint8"}.get(dtype, dtype))
        if kind is torch.int32:
            return torch.full(shape, rows, dtype=kind)
        if kind is torch.uint8:
            return torch.randint(0, 127, shape, generator=generator, dtype=kind)
        return torch.rand(shape, generator=generator).to(kind)

    return call_of(op_of(name), {"hidden_size": SIZE, **_CHOICES.get(name, {}), **choices}, new, rows)


class Recorder(TorchDispatchMode):
    """Records the operators of jitnorm that calls make."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OperatorCall] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "jitnorm":
            self.calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def operator_calls(name: str, **choices: Any) -> list[OperatorCall]:
    """The calls of both overloads of each operator that an op's function makes; of one, if it is all that there is.

    Tensors of narrow dtypes are passed as their bytes, because what checks operators cannot compute with them.
    """
    with Recorder() as recorder:
        call(name, **choices)()
    found: list[OperatorCall] = []
    for function, args, kwargs in recorder.calls:
        packet = function.overloadpacket
        options = {key: value for key, value in kwargs.items() if key in ("config", "enable_pdl")}
        inputs = tuple(map(as_bytes, args))
        if "default" not in packet.overloads():
            written = {key: as_bytes(value) for key, value in kwargs.items() if key not in options}
            found.append((packet.out, inputs, {**options, **written}))
            continue
        overload, out = (
            (packet.amax, packet.amax_out) if "amax" in function._overloadname else (packet.default, packet.out)
        )
        results = overload(*inputs, **options)
        made = [results] if isinstance(results, torch.Tensor) else results
        written = {key: as_bytes(result) for key, result in zip(output_names(function, options), made, strict=True)}
        found += [(overload, inputs, options), (out, inputs, {**options, **written})]
    return found


def output_names(function: Any, options: dict[str, Any]) -> tuple[str, ...]:
    """The names of an operator's outputs with certain options."""
    op = op_of(function.overloadpacket.__name__)
    return Dispatcher(op, None, {**op.fixed, **read_options(options.get("config", ""))}).outputs.names


def as_bytes(value: Any) -> Any:
    """A tensor narrower than 16 bits as its bytes; any other tensor unchanged."""
    narrow = isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.dtype.itemsize == 1
    return value.view(torch.uint8) if narrow else value


def leaves(results: Any) -> list[Any]:
    """The tensors in a result, as bytes."""
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    return [as_bytes(tensor).contiguous().view(torch.uint8) for tensor in tensors]
