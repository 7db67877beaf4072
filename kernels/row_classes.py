"""Classes of calls by their rows: each may have a schedule of its own. The launcher knows them from here."""

from __future__ import annotations

# Up to about as many rows as a large GPU has multiprocessors, calls take as long as one row does.
FEW_ROWS = 128
# Up to so many, all rows take two or three turns of what a large GPU holds at once, so it counts how full the last is.
SOME_ROWS = 1280
# With this many elements, so many rows wait for a multiprocessor that threads with more to do use memory better than
# many threads, which finish a row sooner.
MANY_ELEMENTS = 1 << 26
# With this many rows of up to `SHORT_ROW` elements, the time goes to starting blocks, of which several rows need fewer:
# NVFP4 of 16384 x 1536 went from 0.751 of the roofline to 0.887. Of 8192 x 4096 it fell from 0.902 to 0.848.
MANY_ROWS = 8192
SHORT_ROW = 2048
# Classes of calls, as the launcher numbers them: up to `FEW_ROWS` rows; up to `SOME_ROWS`; what is between;
# `MANY_ELEMENTS`, or `MANY_ROWS` short ones, or more.
ROW_CLASSES = ("few", "some", "usual", "many")


def class_of(rows: int, hidden_size: int) -> str:
    """The class of a call, as the launcher sees it.

    Example:
        >>> class_of(16, 7168), class_of(1024, 8192), class_of(16384, 8192)
        ('few', 'some', 'many')
    """
    if rows * hidden_size >= MANY_ELEMENTS or (rows >= MANY_ROWS and hidden_size <= SHORT_ROW):
        return "many"
    if rows <= FEW_ROWS:
        return "few"
    return "some" if rows <= SOME_ROWS else "usual"
