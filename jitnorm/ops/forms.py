"""How public functions make calls: with their arguments in a fixed order, through functions generated from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from jitnorm.interop import generating
from jitnorm.ops.run import run

if TYPE_CHECKING:
    from jitnorm.dispatch import Calls, Dispatcher
    from jitnorm.kernels.quant_spec import QuantSpec

_MOST_KNOWN = 1024

_TEXT = """
def call({parameters}, stream):
    _named = _run(_dispatcher, {{{named}}}, stream)
    if type({first}) in _generating:
        _generate(type({first}))
    return {result}
"""
# A launch that finds the largest magnitudes of the tensor's parts, then the call.
_TWO_LAUNCHES = """
def call({parameters}, stream):
    return _calls[_form]({parameters}, _before[_amax]({given}, stream), stream)
"""


class Known(dict[tuple[Hashable, ...], "tuple[Calls, Form, Any]"]):
    """The calls of a function with each combination of its options, and their form.

    A key may have the `id` of a spec, whose hash would take 0.13 us; the spec itself is kept, so that no other gets its
    `id`. It has the types of options too, because True equals 1, which is refused.
    """

    def remember(
        self, key: tuple[Hashable, ...], spec: QuantSpec | None, dispatcher: Dispatcher, form: Form
    ) -> tuple[Calls, Form, Any]:
        """Add an entry; specs may be created for each call, so only the last ones are kept."""
        if len(self) >= _MOST_KNOWN:
            self.clear()
        found = self[key] = dispatcher.calls, form, spec
        return found


class Form:
    """The form of a function's calls: ``dispatcher.calls[form]`` takes them, 0.4 us faster than `run` a dict.

    Args:
        parameters: the names of the arguments, in the order in which they are passed, before the stream; those that a
            dispatcher does not take are ignored, and outputs that are missing here are allocated.
        result: an expression of what a call returns, with arguments and outputs in braces; ``{shape}`` is the shape of
            the first tensor.
        scope: the other names in it.
    """

    # The argument that the first of two launches finds.
    _FOUND = "amax_parts"

    def __init__(self, parameters: str, result: str, **scope: Any) -> None:
        self._parameters, self._result, self._scope = tuple(parameters.split()), result, scope

    def of(self, dispatcher: Dispatcher) -> Callable[..., Any]:
        """A function that makes a dispatcher's calls, until a framework's own is known."""
        if dispatcher.before is not None and self._FOUND not in self._parameters:
            return self._of_two_launches(dispatcher, dispatcher.before)
        names = dict.fromkeys((*self._parameters, *dispatcher.outputs.names))
        # A framework that makes the call itself returns only what the dispatcher takes.
        results = {name: f"_named['{name}']" if name in dispatcher.names else name for name in names}
        results["shape"] = f"tuple({dispatcher.first}.shape)"

        def generate(kind: type) -> None:
            if dispatcher.calls[self] is call:
                scope = {**self._scope, "_otherwise": call}
                dispatcher.calls[self] = generating[kind].direct(dispatcher, self._parameters, self._result, scope)

        text = _TEXT.format(
            parameters=", ".join(self._parameters),
            named=", ".join(f"'{name}': {name if name in self._parameters else None}" for name in names),
            first=dispatcher.first,
            result=self._result.format_map(results),
        )
        scope = {
            **self._scope, "_run": run, "_dispatcher": dispatcher, "_generating": generating, "_generate": generate,
        }  # fmt: skip
        exec(text, scope)
        call: Callable[..., Any] = scope["call"]
        return call

    def _of_two_launches(self, dispatcher: Dispatcher, before: Dispatcher) -> Callable[..., Any]:
        given = [name for name in self._parameters if name in before.arguments]
        scope: dict[str, Any] = {
            "_calls": dispatcher.calls,
            "_form": Form(" ".join((*self._parameters, self._FOUND)), self._result, **self._scope),
            "_before": before.calls,
            "_amax": Form(" ".join(given), "{amax}"),
        }
        exec(_TWO_LAUNCHES.format(parameters=", ".join(self._parameters), given=", ".join(given)), scope)
        call: Callable[..., Any] = scope["call"]
        return call
