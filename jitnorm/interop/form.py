"""The form of a function's calls: the order of their arguments, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jitnorm.interop.record import Record, Views

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher


@dataclass(frozen=True)
class Step:
    """A launch of a call.

    Attributes:
        dispatcher: makes it.
        renamed: the call's names of arguments that the dispatcher names otherwise.
    """

    dispatcher: Dispatcher
    renamed: Mapping[str, str] = field(default_factory=dict)

    def named(self, arguments: Iterable[str]) -> list[str]:
        """The call's names of the dispatcher's arguments."""
        return [self.renamed.get(name, name) for name in arguments]


@dataclass(frozen=True)
class Heads:
    """Some of the heads that are side by side in the last dimension of a packed tensor.

    Attributes:
        packed: the parameter that has it; if it is None, so are they.
        start: where, in that dimension, the first begins.
        count: how many they are.
        size: elements of each.
    """

    packed: str
    start: int
    count: int
    size: int

    def of(self, packed: Any) -> Any:
        """A view of torch, (..., count, size)."""
        part = packed.narrow(-1, self.start, self.count * self.size)
        return part.unflatten(-1, (self.count, self.size))


@dataclass(frozen=True, eq=False)
class CallForm:
    """How a function passes its calls. Two are never equal, so that a call finds its own by identity.

    Attributes:
        parameters: the names of the arguments, separated by spaces, in the order in which they are passed, before the
            stream; those that a dispatcher does not take are ignored, and outputs that are missing here are allocated.
        result: what a call returns: ``None``, an argument or an output in braces, or a tuple of those in parentheses;
            ``{record}`` is the record.
        record: an object that a call returns.
        views: what a call returns in place of outputs that it allocates.
        converted: what arguments other than None become, given the call's first tensor, too, where the framework's
            own function does not take them as they are.
        merged: an argument whose last two dimensions the dispatcher takes as one; empty for none.
        heads: what the dispatcher takes as arguments that are packed; the tensors must be torch's.
        steps: the two launches of a call, of which the second reads what the first writes; empty for one launch.
    """

    parameters: str
    result: str
    record: Record | None = None
    views: Views = field(default_factory=dict)
    converted: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    merged: str = ""
    heads: Mapping[str, Heads] = field(default_factory=dict)

    def source(self, argument: str) -> str:
        """The parameter that has an argument."""
        return self.heads[argument].packed if argument in self.heads else argument
    steps: tuple[Step, ...] = ()
