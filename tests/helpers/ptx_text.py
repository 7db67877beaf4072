"""The text of PTX: its instructions, the targets of labels, and what is in shared memory."""

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
    """Parse the instructions, the targets of labels, and the addresses of what is in shared memory."""
    shared, top = {}, 1024
    found = re.findall(r"\.shared \.align (\d+) \.[bu](\d+) ([\w$]+)(?:\[(\d*)\])?;", ptx)
    is_dynamic = [f".b8 {name}[]" in ptx for *_, name, _ in found]
    for (alignment, bits, name, count), _ in sorted(zip(found, is_dynamic, strict=True), key=lambda each: each[1]):
        top = -(-top // int(alignment)) * int(alignment)
        shared[name] = top
        top += int(count or 1) * int(bits) // 8
    assert top <= SHARED_BYTES
    entry = ptx.index(".reqntid" if ".reqntid" in ptx else ".maxntid")
    body = re.sub(r"//.*", "", ptx[entry:].partition("{")[2].rpartition("}")[0])
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    # A block of inline assembly has braces on lines of their own, and registers of its own.
    flat = re.sub(r"(?ms)^\s*\{\s*$(.*?)^\s*\}\s*$", _with_own_registers, body)
    for line in re.split(r"[;\n]", flat):
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


def _with_own_registers(block: re.Match[str]) -> str:
    """The instructions of a block, with names for its registers that no other block has."""
    text = block[1]
    for name in re.findall(r"\.reg \.\w+\s+(%?\w+);", text):
        text = re.sub(rf"{name}(?!\w)", f"{name}_of_{block.start()}", text)
    return text
