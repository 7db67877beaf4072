"""Counts the instructions that a kernel executes from its machine code, as listed by `nvdisasm --print-code`.

Counts one path through a kernel, the one that a warp takes for a whole row of ordinary values. One rule finds it in the
graph of branches: of all paths from the entry to an exit that call no subroutine and have the most global memory
accesses, the one with the fewest choices, and of those the shortest. So

- the slow paths of division and square root, which are calls, are not counted;
- of two ways to encode a block, the path takes the one for ordinary values: the other distinguishes more cases, such as
  blocks of zeros, which have nothing to encode;
- work of only some lanes, such as storing the scale of a pair of lanes, is counted: the whole warp waits for it;
- a loop that clears shared memory where a row has few warps is skipped.

A predicated instruction counts whether or not its predicate holds, since it takes an issue slot either way; a
predicated exit is not taken. A loop on the path counts as often as the caller says; without a number, it is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

# The pipe of an instruction, by the stem of its opcode. Others, for control flow, constants and uniform registers, take
# only an issue slot. Source: the section on pipelines in NVIDIA's Nsight Compute profiling guide.
_PIPES = {
    "fma": "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FHADD FHFMA HADD2 HMUL2 HFMA2 IMAD",
    "alu": "FMNMX FMNMX3 FSEL FSETP IABS IADD3 ISETP LEA LOP3 MOV PLOP3 PRMT SEL SHF VIADD VIADDMNMX VIMNMX VIMNMX3",
    "xu": "F2F F2FP F2I FCHK FRND I2F MUFU POPC",
    "lsu": "LDG LDL LDS SHFL STG STL STS",
}
_PIPE_OF = {stem: pipe for pipe, stems in _PIPES.items() for stem in stems.split()}
PIPES = tuple(_PIPES)
# Instructions for two pairs of floats, of which the pipe computes one after the other.
_OF_PAIRS = ("FADD2", "FMUL2", "FFMA2")

_LABEL = re.compile(r"(\.\w+|[\w$]+):")
_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"(?:(.*),\s*)?`\((\S+?)\)")
_END = -1  # stands for a block after every exit


@dataclass(frozen=True)
class Instruction:
    """An instruction of a listing, such as ``@!P0 LDG.E.128 R4, desc[UR6][R2.64]``."""

    opcode: str
    operands: str = ""
    is_predicated: bool = False

    @property
    def stem(self) -> str:
        """The opcode up to its first dot."""
        return self.opcode.partition(".")[0]

    @property
    def words(self) -> int:
        """4-byte words that each lane moves, if any."""
        width = re.search(r"\.(64|128|256)\b", self.opcode)
        return int(width[1]) // 32 if width else 1


@dataclass
class Block:
    """Instructions without branches between them, and the numbers of the blocks that may follow."""

    instructions: list[Instruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    exits: bool = False

    @property
    def global_accesses(self) -> int:
        return sum(instruction.stem in ("LDG", "STG") for instruction in self.instructions)

    @property
    def chooses(self) -> bool:
        return len(self.successors) > 1


def executed(listing: str, trips: int | None = None) -> list[Instruction]:
    """The instructions that a thread executes on the path described in the module.

    Args:
        listing: nvdisasm's output for one kernel.
        trips: how often the loops on the path run; None if there are none.

    Raises:
        ValueError: no path leads to an exit, or there is a loop and `trips` is None.
    """
    blocks = _blocks(listing)
    order, back_edges = _walk(blocks)
    path = _main_path(blocks, order, back_edges)
    repeated = set[int]()
    for tail, head in back_edges:
        if head in path:
            if trips is None or tail not in path:
                raise ValueError(f"listing: the loop from block {tail} back to {head} runs an unknown number of times")
            repeated |= _loop(blocks, tail, head)
    times = [trips or 1 if number in repeated else 1 for number in path]
    return [each for number, n in zip(path, times, strict=True) for each in blocks[number].instructions * n]


def count(instructions: Iterable[Instruction]) -> Counter[str]:
    """Count issue slots (``issue``), and the results of each of `PIPES`; for ``lsu``, 4-byte words per lane."""
    counts: Counter[str] = Counter()
    for instruction in instructions:
        counts["issue"] += 1
        pipe = _PIPE_OF.get(instruction.stem)
        if pipe:
            counts[pipe] += instruction.words if pipe == "lsu" else 1 + (instruction.stem in _OF_PAIRS)
    return counts


def _blocks(listing: str) -> list[Block]:
    blocks, number_of, jumps = [Block()], dict[str, int](), list[tuple[int, str]]()

    def begin_block(*, falls_through: bool) -> None:
        if falls_through:
            blocks[-1].successors.append(len(blocks))
        blocks.append(Block())

    for line in listing.splitlines():
        if label := _LABEL.match(line):
            begin_block(falls_through=True)
            number_of[label[1]] = len(blocks) - 1
        elif found := _INSTRUCTION.match(line):
            instruction = Instruction(found[2], found[3], found[1] is not None)
            blocks[-1].instructions.append(instruction)
            if instruction.stem in ("BRA", "EXIT", "RET", "CALL"):
                may_pass, target = _jump(instruction)
                if target:
                    jumps.append((len(blocks) - 1, target))
                blocks[-1].exits = instruction.stem == "EXIT" and not may_pass
                begin_block(falls_through=may_pass)
    for number, target in jumps:
        blocks[number].successors.append(number_of[target])
    return blocks


def _jump(instruction: Instruction) -> tuple[bool, str]:
    """Whether a jump may fall through, and its target label; calls and returns have none."""
    found = _TARGET.match(instruction.operands) if instruction.stem == "BRA" else None
    if found is None:
        return instruction.is_predicated, ""
    return instruction.is_predicated or found[1] is not None, found[2]


def _walk(blocks: list[Block]) -> tuple[list[int], set[tuple[int, int]]]:
    """Reachable blocks, each after all its successors, and the edges that close loops."""
    order, back_edges, open_blocks, seen = list[int](), set[tuple[int, int]](), set[int](), set[int]()
    stack = [(0, iter(blocks[0].successors))]
    open_blocks.add(0)
    while stack:
        number, successors = stack[-1]
        following = next(successors, None)
        if following is None:
            order.append(number)
            open_blocks.discard(number)
            stack.pop()
        elif following in open_blocks:
            back_edges.add((number, following))
        elif following not in seen:
            seen.add(following)
            open_blocks.add(following)
            stack.append((following, iter(blocks[following].successors)))
    return order, back_edges


def _main_path(blocks: list[Block], order: list[int], back_edges: set[tuple[int, int]]) -> list[int]:
    # For the rest of the path: global accesses, minus the choices, minus the length; and the next block.
    best: dict[int, tuple[int, int, int, int]] = {_END: (0, 0, 0, _END)}
    for number in order:
        block = blocks[number]
        following = [n for n in block.successors if (number, n) not in back_edges] + [_END] * block.exits
        ways = [(*best[n][:3], n) for n in following if n in best]
        if ways:
            accesses, choices, length, chosen = max(ways)
            own = (block.global_accesses, -block.chooses, -len(block.instructions))
            best[number] = (accesses + own[0], choices + own[1], length + own[2], chosen)
    if 0 not in best:
        raise ValueError("listing: no path leads from its entry to an exit without a call")
    path = [0]
    while best[path[-1]][3] != _END:
        path.append(best[path[-1]][3])
    return path


def _loop(blocks: list[Block], tail: int, head: int) -> set[int]:
    """The blocks of a loop: head, tail, and all blocks from which the tail can be reached without the head."""
    predecessors: dict[int, list[int]] = {}
    for number, block in enumerate(blocks):
        for following in block.successors:
            predecessors.setdefault(following, []).append(number)
    body, waiting = {head, tail}, [tail] if tail != head else []
    while waiting:
        for number in predecessors.get(waiting.pop(), []):
            if number not in body:
                body.add(number)
                waiting.append(number)
    return body
