"""Text from outside, made fit to be printed and logged: what a stranger wrote must not steer a terminal."""

from __future__ import annotations


def printable(text: object) -> str:
    r"""Text on one line, with every character that is not visible spelled out as in a Python literal.

    That is control characters of both sets, line breaks, characters that change the direction of writing or have no
    width, spaces but the common one, and halves of surrogate pairs, which cannot be encoded.

    Args:
        text: anything; it stands for its ``str``.

    Example:
        >>> print(printable("red: \x1b[31m, and a line\n"))
        red: \x1b[31m, and a line\n
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: object) -> str:
    """The same for text that may have several lines, such as what a compiler says: these stay."""
    return "\n".join(map(printable, str(text).expandtabs().split("\n")))
