"""The headers of a kernel as one text: of a target's, what the kernel's entry point needs.

A source could have all headers: what is left out changes no machine code, only how long it takes to compile.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
# Stands for the constants of a source: editors see a sample.
CONFIGURATION = "common/configuration.h"
_INCLUDE = re.compile(r'#include "(.+)"\n')
# What a source is decided on before it is cut: GPUs, norms that are rounded before something follows, heads that are
# turned.
_ON_GPU, _ROUNDS, _ROTATES = "__CUDACC__", "JITNORM_ROUNDS", "JITNORM_ROTATES"
_NAMES = "|".join((_ON_GPU, _ROUNDS, _ROTATES))
# One that has none within.
_CONDITION = re.compile(rf"#ifdef ({_NAMES})\n((?:(?!#ifdef).)*?)(?:#else\n((?:(?!#ifdef).)*?))?#endif\n", re.DOTALL)
# Between two definitions: blank lines, before a line that is not indented.
_BORDER = re.compile(r"\n\n+(?=[^\s}#])")
# The name in a line that is not indented: of a macro, of a type that a typedef gives a name, or before parameters,
# members or a value; the arguments of a specialization stand between.
_NAME = re.compile(
    r"^#define (\w+)"
    r"|^typedef .*?(\w+)(?:\[.*)?;"
    r"|^(?!template|typedef|static_assert)\w.*?\b(?!alignas)(\w+)(?:<[^>]*>)?(?:\(| =| \{|;)",
    re.MULTILINE,
)
_COMMENT = re.compile("//.*")
_WORD = re.compile(r"\w+")
_SPECIALIZATION = re.compile(r"^template <>\n.*?\w<(\w+::\w+)>", re.MULTILINE)


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A part of a header, between blank lines: a function or a type, or some that stand together.

    Args:
        text: with the comment above.
        code: without comments.
        names: what it defines; a heading, which has none, stays with the rest of its header.
        choice: the enumerator that it is a specialization for, such as ``Combine::kAdd``, if it is one.
    """

    text: str
    code: str
    names: frozenset[str]
    choice: str


def headers(constants: str, entry_point: str, *, is_cpu: bool) -> tuple[str, str]:
    """The parts of a source before and after its constants."""
    order = order_of(is_cpu)
    rounds, rotates = "Rounding kRounding" in constants, "Rotation kRotation" in constants
    cuts = {name: cut(name, is_cpu, rounds, rotates) for name in order if name != CONFIGURATION}
    found = needed((each for definitions in cuts.values() for each in definitions), constants, entry_point)
    place = order.index(CONFIGURATION)
    return _text(found, cuts, order[:place]), _text(found, cuts, order[place + 1 :])


def needed(available: Iterable[Definition], constants: str, entry_point: str) -> set[Definition]:
    """The definitions whose names the constants or the entry point mention, or another one that is needed.

    Of the specializations for an enumerator, those are needed whose enumerator is among the constants.
    """
    chosen = [each for each in available if not each.choice or each.choice in constants]
    named: dict[str, list[Definition]] = {}
    for definition in chosen:
        for name in definition.names:
            named.setdefault(name, []).append(definition)
    found, waiting = set[Definition](), frozenset(_WORD.findall(constants + entry_point))
    while waiting:
        reached = {each for word in waiting for each in named.pop(word, ())} - found
        found |= reached
        waiting = frozenset().union(*(_words(each.code) for each in reached))
    return found


@cache
def order_of(is_cpu: bool) -> tuple[str, ...]:
    """The headers of a target, relative to this folder, each behind those that it includes."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for included in _INCLUDE.findall(_read(name, is_cpu)):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), included))
            if path not in found:
                visit(path)
        found[name] = None

    for folder in ("common", "cpu" if is_cpu else "cuda"):
        for path in sorted((FOLDER / folder).iterdir()):
            name = f"{folder}/{path.name}"
            if name not in found:
                visit(name)
    return tuple(found)


@cache
def cut(name: str, is_cpu: bool, rounds: bool = False, rotates: bool = False) -> tuple[Definition, ...]:
    """The definitions of a header, in their order; its heading alone defines nothing."""
    return tuple(definitions_in(_INCLUDE.sub("", _read(name, is_cpu, rounds, rotates)).strip("\n")))


def definitions_in(text: str) -> Iterator[Definition]:
    """Cut the text of a header at its blank lines; one with conditions of its own stays whole."""
    for part in [text] if "#if" in text else _BORDER.split(text):
        code = _COMMENT.sub("", part)
        names = frozenset(filter(None, (name for found in _NAME.findall(code) for name in found)))
        special = _SPECIALIZATION.search(code)
        yield Definition(part, code, names, special[1] if special else "")


@cache
def _words(code: str) -> frozenset[str]:
    return frozenset(_WORD.findall(code))


def _text(found: set[Definition], cuts: dict[str, tuple[Definition, ...]], names: tuple[str, ...]) -> str:
    """The definitions that are needed, in their order, each header's below its heading."""
    return "\n\n".join(
        part.text
        for name in names
        if any(each in found for each in cuts[name])
        for part in cuts[name]
        if part in found or not part.names
    )


@cache
def _read(name: str, is_cpu: bool, rounds: bool = False, rotates: bool = False) -> str:
    """The text of a header, as the target, the rounding and the rotation see it."""
    text = (FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
    holds = {_ON_GPU: not is_cpu, _ROUNDS: rounds, _ROTATES: rotates}
    while _CONDITION.search(text):
        text = _CONDITION.sub(lambda found: (found[2] if holds[found[1]] else found[3]) or "", text)
    return text
