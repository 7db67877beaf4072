"""The form of a function's calls: the order of their arguments, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jitnorm.interop.record import Record, Views

if TYPE_CHECKING:
    from jitnorm.dispatch import Dispatcher
    from jitnorm.interop.taken import Taken


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
        taken: arguments that the dispatcher takes as views of parameters.
        numbers: arguments that are the same in all calls; parameters of their names are ignored.
        steps: the two launches of a call, of which the second reads what the first writes; empty for one launch.
    """

    parameters: str
    result: str
    record: Record | None = None
    views: Views = field(default_factory=dict)
    converted: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    taken: Mapping[str, Taken] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def source(self, argument: str) -> str:
        """The parameter that has an argument."""
        return self.taken[argument].source if argument in self.taken else argument

    steps: tuple[Step, ...] = ()
