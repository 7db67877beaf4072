"""The headers of a kernel as one text: what its root includes, depth-first, each file once."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

from .config import KernelConfig
from .schedule import row_schedule
from .target import Target

FOLDER = Path(__file__).parent
# Stands for the constants of a source: editors see a sample.
CONFIGURATION = "common/configuration.h"
_INCLUDE = re.compile(r'#include "(.+)"')
_BLANK = re.compile(r"\n{3,}")
_OF_TARGET = re.compile(r"#ifdef __CUDACC__\n(?P<cuda>.*?)#else\n(?P<cpu>.*?)#endif\n", re.DOTALL)


def headers(config: KernelConfig, target: Target) -> tuple[str, str]:
    """The parts of a source before and after its constants."""
    return _text(files(config, target), target.is_cpu)


def files(config: KernelConfig, target: Target) -> tuple[str, ...]:
    """The headers of a source, relative to this folder, each behind those that it includes."""
    return _files(root(config, target), tuple(alternatives(config).items()), target.is_cpu)


def root(config: KernelConfig, target: Target) -> str:
    """The header that includes all others that a source needs, relative to this folder."""
    if target.is_cpu:
        return "cpu/row_sets.h" if config.is_row_wise else "cpu/items.h"
    if not config.is_row_wise:
        return "cuda/items.cuh"
    if config.masked:
        return "cuda/rows_masked.cuh"
    return "cuda/rows_ahead.cuh" if row_schedule(config, target).loads_ahead else "cuda/row_sets.cuh"


def alternatives(config: KernelConfig) -> dict[str, str]:
    """Headers that stand for one of several, with that of a configuration; editors see the one that they include."""
    if not config.is_row_wise:
        item = "move" if config.moves else "dequantize" if config.op == "dequantize" else "quantize_columns"
        return {"common/process_item.h": f"common/{item}.h"}
    encoding = "values" if config.quant is None else "blocks" if config.quant.has_blocks else "fp8"
    return {
        "cpu/encode.h": f"cpu/encode_{encoding}.h",
        "cuda/encode.cuh": f"cuda/encode_{encoding}.cuh",
        "cuda/combine.cuh": f"cuda/combine_{config.combine}.cuh",
    }


@cache
def _files(root: str, alternatives: tuple[tuple[str, str], ...], is_cpu: bool) -> tuple[str, ...]:
    instead = dict(alternatives)
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for included in _INCLUDE.findall(_read(name, is_cpu)):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), included))
            path = instead.get(path, path)
            if path not in found:
                visit(path)
        found[name] = None

    visit(root)
    return tuple(found)


@cache
def _text(names: tuple[str, ...], is_cpu: bool) -> tuple[str, str]:
    """The texts of headers without the lines that editors need, before and behind the configuration's."""
    own = [_BLANK.sub("\n\n", _INCLUDE.sub("", _read(name, is_cpu))).strip("\n") for name in names]
    place = names.index(CONFIGURATION)
    before, after = ("\n\n".join(filter(None, part)) for part in (own[:place], own[place + 1 :]))
    return before, after


@cache
def _read(name: str, is_cpu: bool) -> str:
    """The text of a header, as the target sees it."""
    text = (FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return _OF_TARGET.sub(r"\g<cpu>" if is_cpu else r"\g<cuda>", text)
