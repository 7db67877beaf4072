"""The launcher's source as one text, so that its cache key holds all of it."""

from __future__ import annotations

from pathlib import Path

from .launch_recipe import LAUNCHER_ABI, MOST_BYTES
from .row_classes import (
    FEW_ROWS,
    FEW_SMALL_ELEMENTS,
    FEWEST_ROWS,
    LONG_ROW,
    MANY_ELEMENTS,
    MANY_ROWS,
    MANY_SHORTER_ROWS,
    MANY_SMALL_ELEMENTS,
    ROW_CLASSES,
    SEVERAL_ROWS,
    SHORT_ROW,
    SHORTER_ROW,
    SMALL_ROW,
    SOME_ROWS,
)

_FOLDER = Path(__file__).parent / "launcher"
# Each file uses only what precedes it.
_FILES = (
    "prelude.h",
    "json.h",
    "extents.h",
    "recipe.h",
    "tensors.h",
    "locks.h",
    "bounds.h",
    "words.h",
    "call_shape.h",
    "checks.h",
    "driver.h",
    "threads.h",
    "library.h",
    "kernel.h",
    "dispatcher.h",
    "python.h",
    "exchanged.h",
    "views.h",
    "patterns.h",
    "torch_call.h",
    "known.h",
    "memory.h",
    "launcher.cc",
)


def launcher_source() -> str:
    """The complete C++ text of the launcher; it needs the headers of TVM-FFI."""
    prelude, *rest = ((_FOLDER / name).read_text(encoding="utf-8") for name in _FILES)
    classes = ", ".join(f"k{name.capitalize()}" for name in ROW_CLASSES)
    constants = (
        f"constexpr int kLauncherAbi = {LAUNCHER_ABI};\n"
        f"constexpr int64_t kMostBytes = {MOST_BYTES};\n"
        f"constexpr int64_t kFewestRows = {FEWEST_ROWS}, kFewRows = {FEW_ROWS};\n"
        f"constexpr int64_t kSomeRows = {SOME_ROWS}, kSeveralRows = {SEVERAL_ROWS};\n"
        f"constexpr int64_t kLongRow = {LONG_ROW};\n"
        f"constexpr int64_t kManyRows = {MANY_ROWS}, kShortRow = {SHORT_ROW}, kManyElements = {MANY_ELEMENTS};\n"
        f"constexpr int64_t kManyShorterRows = {MANY_SHORTER_ROWS}, kShorterRow = {SHORTER_ROW};\n"
        f"constexpr int64_t kSmallRow = {SMALL_ROW}, kFewSmallElements = {FEW_SMALL_ELEMENTS};\n"
        f"constexpr int64_t kManySmallElements = {MANY_SMALL_ELEMENTS};\n"
        f"enum RowClass : int16_t {{ {classes} }};\n"
    )
    return "\n".join([prelude, constants, *rest])
