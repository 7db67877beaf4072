"""Operator: the implementations of one torch operator, for real tensors and for fake ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from jitnorm.catalogue.op import Allocated, Op
from jitnorm.dispatch import Dispatcher, in_words_of
from jitnorm.interop import check_gradient, framework_of
from jitnorm.kernels.config import KernelConfig, read_options
from jitnorm.ops.run import run
from jitnorm.outputs import Outputs
from jitnorm.torch.schemas import Schema


class Operator:
    """The implementations of both overloads of a schema.

    Args:
        op: the op.
        schema: that of its launch, or of the one before.
    """

    def __init__(self, op: Op, schema: Schema) -> None:
        self._inputs = (*schema.required, *schema.numbers, *schema.optional)
        self._needed = len(schema.required) + len(schema.numbers)
        self._absent = dict.fromkeys((*self._inputs, *schema.outputs))
        self._dispatchers = _Dispatchers(with_bytes(op), frozenset(self._absent))
        self._returned: Callable[[tuple[Any, ...]], Any] = (
            list if schema.sometimes else tuple if len(schema.outputs) > 1 else itemgetter(0)
        )

    def functional(self, *given: Any, config: str = "", enable_pdl: bool | None = None) -> Any:
        """Run the op and return what it allocates."""
        dispatcher = self._dispatchers[config, enable_pdl]
        made = run(dispatcher, self._named(dispatcher, given), None)
        return self._returned(dispatcher.outputs_among(dispatcher.in_order(made)))

    def out(self, *given: Any, config: str = "", enable_pdl: bool | None = None, **outputs: Any) -> None:
        """Run the op and write what the caller gives."""
        dispatcher = self._dispatchers[config, enable_pdl]
        run(dispatcher, {**self._named(dispatcher, given), **outputs}, None)

    def fake(self, *given: Any, config: str = "", enable_pdl: bool | None = None) -> Any:
        """The results of `functional`, without values."""
        dispatcher = self._dispatchers[config, enable_pdl]
        named = self._named(dispatcher, given)
        check_gradients(dispatcher, named)
        return self._returned(tuple(fake_outputs(dispatcher, dispatcher.outputs, named).values()))

    def fake_out(self, *given: Any, config: str = "", enable_pdl: bool | None = None, **outputs: Any) -> None:
        """Check what can be checked without values."""
        dispatcher = self._dispatchers[config, enable_pdl]
        named = {**self._named(dispatcher, given), **outputs}
        check_gradients(dispatcher, named)
        fake_outputs(dispatcher, dispatcher.outputs, named)

    def _named(self, dispatcher: Dispatcher, given: tuple[Any, ...]) -> dict[str, Any]:
        """The arguments of a call by name; torch leaves out those at the end that are None."""
        named = self._absent.copy()
        named.update(zip(self._inputs, given, strict=False))
        if len(given) > self._needed:
            for name in self._inputs[self._needed :]:
                if named[name] is not None and name not in dispatcher.names:
                    raise ValueError(f"{name}: is given, but the other options leave no use for it; pass None")
        return named


class _Dispatchers(dict[tuple[str, "bool | None"], Dispatcher]):
    """The dispatchers of an operator, by `config` and `enable_pdl`, made when they are first needed."""

    def __init__(self, op: Op, arguments: frozenset[str]) -> None:
        super().__init__()
        self._op, self._arguments = op, arguments

    def __missing__(self, options: tuple[str, bool | None]) -> Dispatcher:
        config, enable_pdl = options
        found = Dispatcher(self._op, enable_pdl, {**self._op.fixed, **read_options(config)})
        unknown = [name for name in found.arguments if name not in self._arguments]
        if unknown:
            raise ValueError(f"config: is {config!r}, but the operator {self._op.name} has no {unknown[0]}")
        self[options] = found
        return found


def with_bytes(op: Op) -> Op:
    """The op with codes of E2M1 allocated as bytes: torch's compilers and its exported programs lack their dtype."""

    def allocated(config: KernelConfig) -> Allocated:
        return {"y_fp4": (None, "uint8"), **(op.allocated(config) if op.allocated else {})}

    return replace(op, allocated=allocated)


def fake_outputs(dispatcher: Dispatcher, outputs: Outputs, named: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a call, of the shapes and dtypes that it allocates, without values.

    Args:
        dispatcher: the op's, for the options of the call.
        outputs: how they are allocated.
        named: the call's arguments by name.
    """
    try:
        leaders = [named[name] for name in outputs.leaders]
        framework = framework_of(leaders[0], outputs.leaders[0])
        # Of what torch traces, only the number of rows may be a symbol.
        shapes = [(*leader.shape[:-1], int(leader.shape[-1])) for leader in leaders]
        made = outputs.of(shapes, framework.dtype_name(leaders[0]))
    except (TypeError, ValueError) as error:
        raise in_words_of(dispatcher.op, error) from None
    return {name: framework.empty(shape, dtype, leaders[0]) for name, (shape, dtype) in made.items()}


def check_gradients(dispatcher: Dispatcher, named: Mapping[str, Any]) -> None:
    """Raise TypeError if a tensor of a call requires a gradient."""
    for name in dispatcher.names:
        if named.get(name) is not None:
            check_gradient(named[name], name, name in dispatcher.outputs.names)
