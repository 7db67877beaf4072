"""How public functions make calls: they pass arguments in a fixed order to functions that are generated for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from jitnorm.dispatch import per_options
from jitnorm.interop import check_shaped, exchanges, generating
from jitnorm.interop.form import CallForm, Step
from jitnorm.launcher import launcher, object_at
from jitnorm.ops.run import run, run_steps

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher

_TEXT = """
def call({parameters}, stream):
    {views}
    _named = _run(_dispatcher, {{{named}}}, stream)
    if type({first}) in _generating:
        _generate(type({first}))
    return {result}
"""
# The output of a first launch, and the second launch's argument that it becomes.
_FOUND = {"amax": "amax_parts"}
Shape = tuple[int | None, ...]
"""The shape of a tensor; None for extents that do not matter."""
Kind = str | bool | Shape
"""What an argument is: False for None, text that says how to find it, a tensor's shape, or True for anything else."""


class Known:
    """The calls of a function with each combination of its options.

    Args:
        find: creates the dispatcher of a call and its form, given what matters of some arguments, then the options.
        arguments: the names of the arguments of the form, in the order in which a call passes them. `find` takes the
            kinds of those marked with a star; whether those with a question mark are given; and the `Shape` of those
            with an at sign, with as many of its last extents as the number that follows. An at sign after another mark
            gives the `Shape` in place of True; without another mark, the argument must be a tensor.

    Attributes:
        call: makes a call, given its arguments, the stream, and the options. It finds options by their identity, so
            those that are created for each call are found slowly, by their values.
    """

    call: Callable[..., Any]

    def __init__(self, find: Callable[..., tuple[Dispatcher, Form]], arguments: str) -> None:
        parts = [_PART.fullmatch(argument) for argument in arguments.split()]
        self._find, self._passed = per_options(find), len(parts) + 1
        self._parts = {place: part for place, part in enumerate(parts) if part is not None}
        self.clear()

    def clear(self) -> None:
        """Forget what was found."""
        self._find.cache_clear()
        self.call = self._first

    def _first(self, *given: Any) -> Any:
        self._found(*given)  # raises its errors before the launcher is loaded
        # The launcher keeps these objects. Other threads may be here at the same time.
        objects = None, Exception, str, int, "shape", exchanges, BuiltinFunctionType, self._found
        dims = [-1 if part["dims"] is None else int(part["dims"]) for part in self._parts.values()]
        self.call = object_at(launcher().make_known(self._passed, list(self._parts), dims, id(objects)))
        return self.call(*given)

    def _found(self, *given: Any) -> tuple[Any, ...]:
        """The table of a call's function, its key and what must be kept, as kernels/launcher/known.h takes them."""
        texts = [given[place] for place in self._parts if type(given[place]) is str]
        found = [_what_matters(given[place], **part.groupdict()) for place, part in self._parts.items()]
        options = given[self._passed :]
        dispatcher, form = self._find(*found, *options)
        return dispatcher.calls, form, texts, options


_PART = re.compile(r"(?P<name>\w+)(?=[*?@])(?P<mark>[*?]?)(?:@(?P<dims>\d))?")


def _what_matters(argument: Any, name: str, mark: str, dims: str | None) -> Kind:
    """The kind of an argument, as `find` is given it."""
    if mark == "*" and type(argument) is str:
        return argument
    if dims is None or (mark and argument is None):
        return argument is not None
    check_shaped(argument, name)
    first = len(argument.shape) - int(dims)
    return tuple(int(extent) if place >= first else None for place, extent in enumerate(argument.shape))


def converting(
    find: Callable[..., tuple[Dispatcher, Form]], converted: Mapping[str, Callable[[Any, Any], Any]]
) -> Callable[..., tuple[Dispatcher, Form]]:
    """Find the same calls as another function, with arguments that are `CallForm.converted`."""

    def found(*given: Any) -> tuple[Dispatcher, Form]:
        dispatcher, form = find(*given)
        return dispatcher, replace(form, converted=converted)

    return found


def text_of(shape: Shape) -> str:
    """A shape in an error's words."""
    known = [str(extent) for extent in shape if extent is not None]
    return f"({', '.join(['...'] * (len(known) < len(shape)) + known)}{',' * (len(shape) == 1)})"


class Form(CallForm):
    """The form of a public function's calls: ``dispatcher.calls[form]`` makes them, 0.4 us faster than `run`."""

    def of(self, dispatcher: Dispatcher) -> Callable[..., Any]:
        """A function that makes a dispatcher's calls, until a framework generates its own."""
        form = self
        if dispatcher.before is not None:
            form = replace(self, steps=(Step(dispatcher.before, _FOUND), Step(dispatcher)))
        parameters, steps = self.parameters.split(), form.steps or (Step(dispatcher),)
        written = [name for step in steps for name in step.named(step.dispatcher.outputs.names)]
        given = {name: name if name in parameters else "None" for name in (*parameters, *written)}
        given |= {name: repr(number) for name, number in self.numbers.items()}
        first = self.source(dispatcher.first)
        for name in self.converted:
            given[name] = f"{name} if {name} is None else _converted['{name}']({name}, {first})"
        # An argument that is written in place is one tensor, so it must also be one view.
        taken = {view: f"_taken_as_{name}" for name, view in self.taken.items()}
        given |= {name: taken[view] for name, view in self.taken.items()}

        def generate(kind: type) -> None:
            if dispatcher.calls[self] is call:
                dispatcher.calls[self] = generating[kind].generate(dispatcher, form, call)

        text = _TEXT.format(
            parameters=", ".join(parameters),
            views="\n    ".join(
                f"{name} = None if {view.source} is None else _views_of['{name}'].of({view.source}, {first})"
                for view, name in taken.items()
            ),
            named=", ".join(f"'{name}': {text}" for name, text in given.items()),
            first=first,
            result=self.result.format_map(self._results(steps, given)),
        )
        scope: dict[str, Any] = {
            "_record": self.record, "_views": self.views, "_run": run_steps if form.steps else run,
            "_dispatcher": form.steps or dispatcher, "_generating": generating, "_generate": generate,
            "_converted": self.converted, "_views_of": {name: view for view, name in taken.items()},
        }  # fmt: skip
        exec(text, scope)
        call: Callable[..., Any] = scope["call"]
        return call

    def _results(self, steps: Sequence[Step], names: Iterable[str]) -> dict[str, str]:
        """Expressions of all that a call may return, by the names in `result`."""
        # A framework that makes the call itself returns only what the dispatcher takes.
        taken = {name for step in steps for name in step.named(step.dispatcher.names)}
        results = {name: f"_named['{name}']" if name in taken else name for name in names}
        parameters = self.parameters.split()
        for name in self.views.keys() & results.keys():
            view = f"_views['{name}']({results[name]}, {self.source(steps[0].dispatcher.first)})"
            results[name] = f"({view} if {name} is None else {name})" if name in parameters else view
        if self.record is not None:
            results["record"] = self.record.expression.format_map(results)
        return results
