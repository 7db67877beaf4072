"""The text of PTX: its instructions, the targets of labels, and the arrays in shared memory."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

SHARED_BYTES = 1 << 18


class Instruction(NamedTuple):
    """An instruction, executed by the threads whose predicate has the required value."""

    predicate: str
    is_negated: bool
    opcode: str
    operands: tuple[str, ...]


@cache
def parse_ptx(ptx: str) -> tuple[list[Instruction], dict[str, int], dict[str, int]]:
    """Parse the instructions, the targets of labels, and the addresses of arrays in shared memory."""
    shared, top = {}, 1024
    found_arrays = re.findall(r"\.shared \.align (\d+) \.b8 ([\w$]+)\[(\d*)\]", ptx)
    for alignment, name, size in sorted(found_arrays, key=lambda found: not found[2]):  # the dynamic one is last
        top = -(-top // int(alignment)) * int(alignment)
        shared[name] = top
        top += int(size or 0)
    assert top <= SHARED_BYTES
    entry = ptx.index(".reqntid" if ".reqntid" in ptx else ".maxntid")
    body = re.sub(r"//.*", "", ptx[entry:].partition("{")[2].rpartition("}")[0])
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    # A block of inline assembly has braces on lines of their own.
    for line in re.split(r"[;\n]", re.sub(r"(?m)^\s*[{}]\s*$", "", body)):
        text = line.strip()
        while found := re.match(r"([$\w]+):\s*", text):
            labels[found[1]] = len(instructions)
            text = text[found.end() :]
        if not text or text.startswith("."):
            continue
        parsed = re.match(r"(?:@(!?)(%?\w+)\s+)?([\w.:]+)\s*(.*)", text)
        assert parsed, text
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^\s,{}\[\]]+", parsed[4])
        instructions.append(Instruction(parsed[2] or "", bool(parsed[1]), parsed[3], tuple(operands)))
    return instructions, labels, shared
