"""Makes text from outside safe to print and log: a stranger's text must not control the terminal."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Put text on one line, with every invisible character escaped as in a Python literal.

    This escapes control characters of both sets, line breaks, characters that change the writing direction or have no
    width, all spaces but the common one, and halves of surrogate pairs, which cannot be encoded.

    Args:
        text: anything; converted by ``str``.

    Example:
        >>> print(printable("red: \x1b[31m, and a line\n"))
        red: \x1b[31m, and a line\n
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: object) -> str:
    """Like `printable`, but keep line breaks, as for the output of a compiler."""
    return "\n".join(map(printable, str(text).expandtabs().split("\n")))
