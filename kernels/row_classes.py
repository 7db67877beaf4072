"""Classes of calls by their rows, each of which may have its own schedule. The launcher gets them from here."""

from __future__ import annotations

# Up to about as many rows as a large GPU has multiprocessors, a call takes as long as a single row.
FEW_ROWS = 128
# Up to so many rows, a large GPU processes them in two or three waves, so it matters how full the last one is.
SOME_ROWS = 1280
# With this many elements, there are enough rows per multiprocessor that fewer threads with more work use memory better
# than many threads, which finish a row sooner.
MANY_ELEMENTS = 1 << 26
# With this many rows of up to `SHORT_ROW` elements, starting blocks takes the time, so several rows share a block:
# NVFP4 of 16384 x 1536 went from 0.751 of the roofline to 0.887. Of 8192 x 4096 it fell from 0.902 to 0.848.
MANY_ROWS = 8192
SHORT_ROW = 2048
# Classes of calls, in the launcher's order: up to `FEW_ROWS` rows; up to `SOME_ROWS`; everything in between;
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
