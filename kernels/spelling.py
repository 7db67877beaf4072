"""Advice on misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(value: object, known: Iterable[object]) -> str:
    """The end of an error message: the known name most similar to a text; empty if none is similar.

    Example:
        >>> did_you_mean("nvpf4", ["mxfp4", "nvfp4"]), did_you_mean("softmax", ["rmsnorm"])
        ("; did you mean 'nvfp4'?", '')
    """
    from difflib import get_close_matches  # only errors need it

    names = [name for name in known if isinstance(name, str)]
    near = get_close_matches(value, names, 1, 0.7) if isinstance(value, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""
