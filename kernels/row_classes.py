"""Classes of calls by their rows, each of which may have its own schedule. The launcher gets them from here."""

from __future__ import annotations

from collections.abc import Collection
from math import isqrt

from .numerics import ceil_div

# Up to about as many rows as a large GPU has multiprocessors, a call takes as long as a single row.
FEW_ROWS = 128
# Up to so many rows, several multiprocessors can share each, from which longer rows gain: on an H100, add + RMSNorm of
# 1 x 15872 takes 2.74 us with 16x2wqlb8 and 3.15 with 16x2wq, but of 128 x 15872 9.67 and 6.63; on an H200, norms of 1
# and 16 rows of 3600 to 4096 elements take 0.92 of the time in clusters, of 1536 to 2048 0.98.
FEWEST_ROWS = 32
LONG_ROW = 2048
# Up to so many rows, three for each multiprocessor of a large GPU, most schedules need one wave; up to `SEVERAL_ROWS`,
# two or three, so it matters how full the last one is. On an H200, add + RMSNorm of 384 x 4096 takes 4.43 us with
# 8x1ql, 4.91 by rule, but of 1024 x 4096 10.36 and 9.42; RMSNorm of 384 x 7168 takes 4.8 us with 14x1wuqd, of which a
# multiprocessor holds three blocks, and 4.5 with 7x2wuqd, of 448 x 7168 6.0 and 4.9.
SOME_ROWS, SEVERAL_ROWS = 384, 1280
# With this many elements, there are enough rows per multiprocessor that fewer threads with more work use memory better
# than many threads, which finish a row sooner.
MANY_ELEMENTS = 1 << 26
# With this many rows of up to `SHORT_ROW` elements, starting blocks takes the time, so several rows share a block:
# NVFP4 of 16384 x 1536 went from 0.751 of the roofline to 0.887. Of 8192 x 4096 it fell from 0.902 to 0.848. With fewer
# rows, the schedules of many leave the last wave too empty: on an H200, ops at 1280 to 2048 columns take 0.96 to 0.98
# of their time at 8192 rows with those of usual calls, 0.99 to 1.01 at 16000, 1.00 to 1.03 at 26000.
MANY_ROWS, SHORT_ROW = 16384, 2048
# The same for rows with so few elements that fewer of them suffice. An H200 starts about 0.8 blocks per nanosecond:
# SwiGLU to FP8 of 12174 x 528 would take 1.49 times as long.
MANY_SHORTER_ROWS, SHORTER_ROW = 8192, 1024
# Rows of up to a group of elements, such as heads, are few, usual or many: blocks are so small that only the number of
# elements counts. On an H200, queries and keys of 400 x 4096, 16000 heads, take 0.91 of the time with the schedule of
# usual calls, norms of 1.2 and 1.7 million elements 0.96 and 0.95, but of 0.4 million 1.02. Several rows in a warp
# are too few threads for fewer than `MANY_SMALL_ELEMENTS`: NVFP4 of 8192 x 384 fell from 0.90 of a copy to 0.78.
SMALL_ROW, FEW_SMALL_ELEMENTS, MANY_SMALL_ELEMENTS = 512, 1 << 20, 1 << 22
# Classes of calls, in the launcher's order: up to `FEWEST_ROWS` rows of more than `LONG_ROW` elements; up to `FEW_ROWS`
# rows; up to `SOME_ROWS`; up to `SEVERAL_ROWS`; everything in between; `MANY_ELEMENTS`, `MANY_ROWS` short ones,
# `MANY_SHORTER_ROWS` shorter ones, or more.
ROW_CLASSES = ("fewest", "few", "some", "several", "usual", "many")
# What users name with one word.
_INCLUDED = {"few": "fewest", "some": "several"}


def class_of(rows: int, hidden_size: int) -> str:
    """The class of a call, as the launcher sees it.

    Example:
        >>> class_of(16, 16384), class_of(16, 2048), class_of(1024, 8192), class_of(16384, 8192)
        ('fewest', 'few', 'several', 'many')
        >>> class_of(8192, 128), class_of(30720, 128)
        ('few', 'usual')
    """
    elements = rows * hidden_size
    if hidden_size <= SMALL_ROW:
        return "few" if elements <= FEW_SMALL_ELEMENTS else "usual" if elements < MANY_SMALL_ELEMENTS else "many"
    if elements >= MANY_ELEMENTS or rows >= _many_rows(hidden_size):
        return "many"
    if rows <= FEW_ROWS:
        return "fewest" if rows <= FEWEST_ROWS and hidden_size > LONG_ROW else "few"
    return "some" if rows <= SOME_ROWS else "several" if rows <= SEVERAL_ROWS else "usual"


def fewest_elements(row_class: str, hidden_size: int) -> int:
    """The fewest elements that calls of a class have.

    Example:
        >>> fewest_elements("several", 1000), fewest_elements("many", 1000) == 8192 * 1000
        (385000, True)
    """
    if hidden_size <= SMALL_ROW:
        return {"usual": FEW_SMALL_ELEMENTS + 1, "many": MANY_SMALL_ELEMENTS}.get(row_class, hidden_size)
    if row_class == "many":
        return min(MANY_ELEMENTS, _many_rows(hidden_size) * hidden_size)
    return {"some": FEW_ROWS + 1, "several": SOME_ROWS + 1, "usual": SEVERAL_ROWS + 1}.get(row_class, 1) * hidden_size


def typical_elements(row_class: str, hidden_size: int) -> int:
    """The geometric mean of the fewest elements of a class's calls and those of the next; of many, twice the fewest.

    Example:
        >>> typical_elements("several", 4096) // 4096
        702
    """
    least = fewest_elements(row_class, hidden_size)
    others = (fewest_elements(each, hidden_size) for each in classes_of(hidden_size))
    return isqrt(least * min((each for each in others if each > least), default=4 * least))


def _many_rows(hidden_size: int) -> int:
    """The fewest rows that are many, whatever their elements."""
    if hidden_size > SHORT_ROW:
        return ceil_div(MANY_ELEMENTS, hidden_size)
    return MANY_SHORTER_ROWS if hidden_size <= SHORTER_ROW else MANY_ROWS


def classes_of(hidden_size: int, named: Collection[str] = ROW_CLASSES) -> tuple[str, ...]:
    """The classes, out of those named, that calls with rows of a length have; few include fewest, some several.

    Of rows of up to `SMALL_ROW` elements, some and several are few.

    Example:
        >>> classes_of(2048), classes_of(65536)
        (('few', 'some', 'several', 'usual', 'many'), ('fewest', 'few', 'some', 'several', 'many'))
        >>> classes_of(16384, ["few", "many"]), classes_of(128, ["some"])
        (('fewest', 'few', 'many'), ('few',))
    """
    wanted = {*named, *(_INCLUDED[each] for each in named if each in _INCLUDED)}
    if hidden_size <= SMALL_ROW and not wanted.isdisjoint(("some", "several")):
        wanted.add("few")
    small = FEW_SMALL_ELEMENTS // hidden_size + 1
    of_each = (1, FEW_ROWS, SOME_ROWS, SOME_ROWS + 1, SEVERAL_ROWS + 1, small, MANY_ELEMENTS)
    found = (class_of(rows, hidden_size) for rows in of_each)
    return tuple(each for each in dict.fromkeys(found) if each in wanted)
