"""Operator: the implementations of one torch operator, for real tensors and for fake ones."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch

from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher
from jitnorm.interop import framework_of
from jitnorm.interop.base import FastPath
from jitnorm.kernels.config import read_options
from jitnorm.ops.run import run
from jitnorm.torch.fakes import check_given_outputs, faked, with_bytes
from jitnorm.torch.schemas import Schema

_TORCH = framework_of(torch.empty(0), "")
_increment_versions = torch._C._increment_version


class Operator:
    """The implementations of both overloads of a schema.

    Args:
        op: the op.
        schema: the schema of its launch, or of the preceding one.

    Attributes:
        schema: as given.
        fast_paths: those of calls that allocate, by `config` and `enable_pdl`; None if torch tensors have none.
        fast_paths_to_write: those of calls that are given their outputs.
    """

    def __init__(self, op: Op, schema: Schema) -> None:
        self.schema = schema
        inputs = (*schema.required, *schema.numbers, *schema.optional)
        optional = schema.nullable.union(schema.optional, schema.outputs)
        self._input_count, self._outputs = len(inputs), schema.outputs
        returned = list if schema.sometimes else tuple if len(schema.outputs) > 1 else itemgetter(0)
        self._returned: Callable[[tuple[Any, ...]], Any] = returned
        self._forms = _Forms(with_bytes(op), (*inputs, *schema.outputs), optional)
        self._nothing = (None,) * len(schema.outputs)
        self.fast_paths = _FastPaths(self._forms, frozenset()) if _TORCH.is_direct else None
        self.fast_paths_to_write = _FastPaths(self._forms, schema.sometimes) if _TORCH.is_direct else None

    def make(self, config: str, enable_pdl: bool | None, inputs: tuple[Any, ...]) -> Any:
        """Run the op and return its allocated outputs."""
        form = self._forms[config, enable_pdl]
        return self._returned(form.dispatcher.outputs_among(form.allocating(inputs + self._nothing)))

    def write(self, config: str, enable_pdl: bool | None, given: tuple[Any, ...]) -> None:
        """Run the op on outputs that the caller gives after the inputs."""
        self._forms[config, enable_pdl].writing(given)

    def make_parts(self, config: str, enable_pdl: bool | None, inputs: tuple[Any, ...]) -> Any:
        """`make` with tensors that consist of others: an operator's call of DTensors is the function's."""
        form = self._forms[config, enable_pdl]
        return self._returned(form.dispatcher.outputs_among(form.running(inputs + self._nothing)))

    def write_parts(self, config: str, enable_pdl: bool | None, given: tuple[Any, ...]) -> None:
        """`write` with such tensors."""
        self._forms[config, enable_pdl].running(given, writes=True)

    def fake(self, *given: Any, config: str = "", enable_pdl: bool | None = None) -> Any:
        """The results of `make`, without values."""
        dispatcher, named = self._named(config, enable_pdl, given, {})
        return self._returned(tuple(faked(dispatcher, named).values()))

    def fake_write(self, *given: Any, config: str = "", enable_pdl: bool | None = None, **outputs: Any) -> None:
        """Check what can be checked without values."""
        dispatcher, named = self._named(config, enable_pdl, given, outputs)
        check_given_outputs(dispatcher, named)
        faked(dispatcher, named)

    def _named(
        self, config: str, enable_pdl: bool | None, given: tuple[Any, ...], outputs: dict[str, Any]
    ) -> tuple[Dispatcher, dict[str, Any]]:
        """The dispatcher and the arguments by name of a call in torch's form, which omits trailing defaults."""
        form = self._forms[config, enable_pdl]
        inputs = (*given, *(None,) * (self._input_count - len(given)))
        return form.dispatcher, form.named((*inputs, *map(outputs.get, self._outputs)))


class _Form:
    """Calls of an operator with the same options.

    A call is a tuple of all arguments, outputs last. Torch has dispatched it, so its tensors are plain memory, need no
    recorded gradients, and no mode must see them; `ops.run.run` would check all that first, which took 1 us more.

    Args:
        dispatcher: the op's dispatcher for the options.
        names: the names of the arguments, in that order.
        optional: the names of arguments that may be omitted or None.
    """

    def __init__(self, dispatcher: Dispatcher, names: tuple[str, ...], optional: frozenset[str]) -> None:
        self.dispatcher = dispatcher
        places = {name: place for place, name in enumerate(names)}
        self._in_order = itemgetter(*(places[name] for name in dispatcher.arguments))
        self._unused = [(places[name], name) for name in names if name in optional and name not in dispatcher.names]

    def named(self, given: tuple[Any, ...]) -> dict[str, Any]:
        """The arguments by name."""
        return dict(zip(self.dispatcher.arguments, self._ordered(given), strict=True))

    def fast_path(self, given: frozenset[str]) -> FastPath:
        """The fast path of such calls; those that lack an output that must be given have none."""
        usual, unused = _TORCH.fast_path(self.dispatcher), [name for _, name in self._unused]
        needed = [name for name in self.dispatcher.outputs.names if name in given]

        def call(named: dict[str, Any], stream: Any) -> bool:
            for name in needed:
                if named[name] is None:
                    return False
            return all(named[name] is None for name in unused) and usual(named, stream)

        return call if unused or needed else usual

    def writing(self, given: tuple[Any, ...]) -> None:
        """Make a call with outputs."""
        dispatcher, arguments = self.dispatcher, self._ordered(given)
        try:
            if _TORCH.is_direct:
                _increment_versions(dispatcher.outputs_among(arguments))
                if dispatcher.launch(*arguments) is None:
                    return
        except (BufferError, RuntimeError, TypeError, ValueError):
            pass  # nothing has run; `run` raises the error again, in the caller's terms
        self.running(given, writes=True)

    def allocating(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Make a call without outputs, and return its arguments with them."""
        dispatcher, named = self.dispatcher, self.named(given)
        try:
            if _TORCH.is_direct:
                dispatcher.outputs.allocate(_TORCH, named)
                arguments = dispatcher.in_order(named)
                if dispatcher.launch(*arguments) is None:
                    return arguments
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
            pass
        return self.running(given)

    def running(self, given: tuple[Any, ...], *, writes: bool = False) -> tuple[Any, ...]:
        """Make a call, with outputs if it writes, as a function makes it, and return its arguments with outputs."""
        named = self.named(given)
        if writes:
            check_given_outputs(self.dispatcher, named)
        return self.dispatcher.in_order({**named, **run(self.dispatcher, named, None)})

    def _ordered(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments in the dispatcher's order."""
        for place, name in self._unused:
            if given[place] is not None:
                raise ValueError(f"{name}: is given, but the other options leave no use for it; pass None")
        ordered: tuple[Any, ...] = self._in_order(given)
        return ordered


class _Forms(dict[tuple[str, "bool | None"], _Form]):
    """The forms of an operator's calls, by `config` and `enable_pdl`, created on first use."""

    def __init__(self, op: Op, names: tuple[str, ...], optional: frozenset[str]) -> None:
        super().__init__()
        self._op, self._names, self._optional = op, names, optional

    def __missing__(self, options: tuple[str, bool | None]) -> _Form:
        config, enable_pdl = options
        dispatcher = Dispatcher(self._op, enable_pdl, {**self._op.fixed, **read_options(config)})
        unknown = [name for name in dispatcher.arguments if name not in self._names]
        if unknown:
            raise ValueError(f"config: is {config!r}, but the operator {self._op.name} has no {unknown[0]}")
        made = self[options] = _Form(dispatcher, self._names, self._optional)
        return made


class _FastPaths(dict[tuple[str, "bool | None"], FastPath]):
    """The fast paths of an operator's calls, by `config` and `enable_pdl`, created on first use."""

    def __init__(self, forms: _Forms, given: frozenset[str]) -> None:
        super().__init__()
        self._forms, self._given = forms, given

    def __missing__(self, options: tuple[str, bool | None]) -> FastPath:
        made = self[options] = self._forms[options].fast_path(self._given)
        return made
