"""The form of a function's calls: the order of their arguments, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jitnorm.interop.record import Record, Views


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
    """

    parameters: str
    result: str
    record: Record | None = None
    views: Views = field(default_factory=dict)
    converted: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    merged: str = ""
