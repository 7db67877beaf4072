"""Text from outside cannot control the terminal, and can always be encoded."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jitnorm.cache.printable import printable, printable_lines

# Surrogates too, which JSON can hold.
ANYTHING = st.text(st.characters())


@given(ANYTHING)
@example("".join(map(chr, range(0x3000))))
def test_nothing_but_visible_characters_is_left(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")


@given(ANYTHING)
def test_what_is_visible_stays_and_the_rest_is_told(text: str) -> None:
    assert printable(text) == "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rmsnorm:hidden_size=4096, größer", "rmsnorm:hidden_size=4096, größer"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("one\r\ntwo\x85three", r"one\r\ntwo\x85three"),
        ("a\u202eb\u2066c\u200bd\u2028e", r"a\u202eb\u2066c\u200bd\u2028e"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_stay_lines_where_they_are_wanted() -> None:
    assert printable_lines("one\n\ttwo\r\x1b[2J\n") == "one\n        two\\r\\x1b[2J\n"
