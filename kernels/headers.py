"""The headers of a kernel as one text: the parts of a target's headers that the kernel's entry point needs.

A source could include all headers: omitting the rest does not change the machine code, only the compile time.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
# Stands in for the constants of a source, so that editors see a sample.
CONFIGURATION = "common/configuration.h"
_INCLUDE = re.compile(r'#include "(.+)"\n')
_ON_GPU = "__CUDACC__"
# Conditions that are decided before a source is cut, with the constants that imply them, so that code which few sources
# need does not change the others.
CONDITIONS = {
    "JITNORM_PACKS_FLOATS": "kPacksFloats = true",  # instructions add and multiply pairs of floats
    "JITNORM_MIXES_PRECISIONS": "kMixesPrecisions = true",  # instructions add 16-bit floats and products to floats
    "JITNORM_ROUNDS": "Rounding kRounding",  # values are rounded before they are encoded
    "JITNORM_EXPERTS": "kExperts",
    "JITNORM_PADS": "kPaddingBlocks",  # scales are padded by blocks of their own, or by those that stay
    "JITNORM_GATHERS": "kGathers",
    "JITNORM_MIXES_LAYER": "kMixesLayer",
    "JITNORM_GIVEN_SCALES": "Encoding::kGivenScales",
    "JITNORM_ACTIVATION_NUMBERS": "kGateLimit",  # activations have numbers of the caller's
    "JITNORM_VALUES_FIRST": "kValuesFirst",
    "JITNORM_UNWEIGHTED": "typedef One Weight",
    "JITNORM_SUMS_GRADIENTS": "kSumsGradients = true",  # of parameters, over rows
    "JITNORM_TWO_SIZES": "kHasTwoSizes = true",
    "JITNORM_ROUNDS_AMAX": "kHalfOfLastBit",
    "JITNORM_BLOCKS_CROSS_WARPS": "kBlocksCrossWarps",
    "JITNORM_TENSOR_AMAX": "kAmaxParts",  # of the tensor, which is found in parts
    "JITNORM_ROTATES": "Rotation kRotation",
    "JITNORM_FREQUENCIES": "kHasFrequencies",  # cosines and sines are computed from frequencies
    "JITNORM_UNALIGNED": "kHasNarrowAccesses = true",  # some tensor may be at addresses that are not aligned
    "JITNORM_TABULATES": "kLeastTabulated",  # activations are looked up in shared memory
    "JITNORM_SPLITS_CHUNKS": "kSplitsChunks = true",  # a lane has halves of two chunks
    "JITNORM_HOLDS_HALVES": "kHoldsHalves = true",  # a lane has a chunk of each half of a head
    "JITNORM_SPLITS_HEADS": "kSplitsHeads = true",  # half a chunk of each
    "JITNORM_PAGES": "Encoding::kPages",  # keys and values are inserted into pages of caches
    "JITNORM_FINISHES": "Finish kFinish",  # a norm goes through another step before it is encoded
    "JITNORM_GATES": "kGateAccessBytes",  # gates are a separate tensor
    "JITNORM_ACTIVATES_EARLY": "kActivatesEarly = true",  # before the statistic of their norm is known
    "JITNORM_TURNS": "kWeightRows",  # rows cycle through the rows of the weight
    "JITNORM_WEIGHTS": "kWeights",  # a norm is multiplied by several weights, each for a separate output
    "JITNORM_SHARES_PARAMETERS": "kSharedChunks",  # persistent blocks have the parameters in shared memory
    "JITNORM_COPIES_PARAMETERS": "kCopiesParameters = true",  # parameters are copied to shared memory with the row
    "JITNORM_REORDERS_VALUES": "kReordersValues = true",  # into the order in which a lane loads float32 parameters
    "JITNORM_SUMS_FIRST": "kSumsFirst",  # a sum over the loaded elements is needed before the row
    "JITNORM_MAPS_STREAMS": "Combine::kMapped",  # the factors of streams are computed from projections
    "JITNORM_BRANCH": "Combine::kBranch",  # a branch is gated or scaled before it is added, or the norm is modulated
    "JITNORM_MODULATES": "Finish::kModulated",
    "JITNORM_REDUCES": "Combine::kReduced",  # inputs of several ranks are summed first
    "JITNORM_RECEIVES": "kSendsRows",  # each rank gets the rows of all
    "JITNORM_SCATTERS": "kScattersRows",  # only those that it sums
    "JITNORM_PASSES_SUMS": "kPassesSums",  # ranks divide the rows to sum them, and each encodes all
    "JITNORM_DIVIDES": "kSharesSum",  # ranks divide the rows, and each encodes its own
    "JITNORM_SANDWICH": "Combine::kSandwich",  # what is normalized is a sum with a norm
}
# A condition with none nested in it.
_CONDITION = re.compile(
    rf"#ifdef ({'|'.join((_ON_GPU, *CONDITIONS))})\n((?:(?!#ifdef).)*?)(?:#else\n((?:(?!#ifdef).)*?))?#endif\n",
    re.DOTALL,
)
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
    """A part of a header, between blank lines: a function or a type, or several together.

    Args:
        text: its text, including the comment above it.
        code: its text without comments.
        names: the names that it defines; a heading, which has none, stays with the rest of its header.
        choice: the enumerator that it is a specialization for, such as ``Combine::kAdd``, if it is one.
    """

    text: str
    code: str
    names: frozenset[str]
    choice: str


def headers(constants: str, entry_point: str, *, is_cpu: bool) -> tuple[str, str]:
    """The parts of a source before and after its constants."""
    order = order_of(is_cpu)
    holding = holding_of(constants)
    cuts = {name: cut(name, is_cpu, holding) for name in order if name != CONFIGURATION}
    found = needed((each for definitions in cuts.values() for each in definitions), constants, entry_point)
    place = order.index(CONFIGURATION)
    return _text(found, cuts, order[:place]), _text(found, cuts, order[place + 1 :])


def holding_of(constants: str) -> frozenset[str]:
    """The conditions, of `CONDITIONS`, that hold for a source with these constants."""
    return frozenset(condition for condition, trace in CONDITIONS.items() if trace in constants)


def needed(available: Iterable[Definition], constants: str, entry_point: str) -> set[Definition]:
    """The definitions named by the constants, by the entry point, or by other needed definitions.

    A specialization for an enumerator is needed only if that enumerator is among the constants.
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
    """The headers of a target, relative to this folder, each after those that it includes."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for included in _INCLUDE.findall(_read(name, is_cpu, frozenset())):
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
def cut(name: str, is_cpu: bool, holding: frozenset[str] = frozenset()) -> tuple[Definition, ...]:
    """The definitions of a header, in order, under the conditions that hold; its heading defines nothing."""
    return tuple(definitions_in(_INCLUDE.sub("", _read(name, is_cpu, holding)).strip("\n")))


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
    """The needed definitions, in order, each header's below its heading."""
    return "\n\n".join(
        part.text
        for name in names
        if any(each in found for each in cuts[name])
        for part in cuts[name]
        if part in found or not part.names
    )


@cache
def _read(name: str, is_cpu: bool, holding: frozenset[str]) -> str:
    """The text of a header for a target, under the conditions that hold."""
    text = (FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
    true = holding if is_cpu else holding | {_ON_GPU}
    found = 1
    while found:  # the innermost first
        text, found = _CONDITION.subn(lambda each: (each[2] if each[1] in true else each[3]) or "", text)
    return text
