"""Text that this repository makes: sums and small tales by a few rules, as bytes, of any length."""

from __future__ import annotations

import random

import torch
from torch import Tensor

_WHO = ("the fox", "a miller", "my sister", "the old crow", "every child", "a sailor", "the queen", "nobody")
_DOES = ("counts", "sells", "finds", "paints", "hides", "carries", "breaks", "dreams of")
_WHAT = ("apples", "red stones", "letters", "silver coins", "feathers", "lamps", "small boats", "songs")
_WHERE = ("by the river", "in the tower", "under a bridge", "at night", "before breakfast", "near the mill")


def text_of(length: int, seed: int) -> Tensor:
    """So many bytes of text, uint8; the same for the same seed on every machine."""
    chance, parts, size = random.Random(seed), list[str](), 0
    while size < length:
        parts.append(_tale(chance) if chance.random() < 0.6 else _sum(chance))
        size += len(parts[-1])
    return torch.frombuffer(bytearray("".join(parts)[:length], "ascii"), dtype=torch.uint8)


def _tale(chance: random.Random) -> str:
    """A sentence whose second half depends on its first."""
    who, what = chance.randrange(len(_WHO)), chance.randrange(len(_WHAT))
    count = chance.randrange(2, 20)
    line = (
        f"{_WHO[who]} {_DOES[(who + what) % len(_DOES)]} {count} {_WHAT[what]} {_WHERE[(count + who) % len(_WHERE)]}. "
    )
    return line[0].upper() + line[1:]


def _sum(chance: random.Random) -> str:
    a, b = chance.randrange(100), chance.randrange(100)
    return f"{a} + {b} = {a + b}. "
