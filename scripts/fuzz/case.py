"""One random call as plain values, which print as the code that makes them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

from inputs import ALL_DTYPES, INPUT_KINDS

from fuzz.ops import OPS

_SIZES = (1, 2, 7, 16, 40, 64, 96, 127, 128, 384, 513, 1000, 1024, 4096)
BLOCK_SIZES = (768, 1536, 2304, 4608)  # whole blocks of any length that a spec can have
_LEADING = ((), (1,), (2,), (5,), (8,), (33,), (130,), (0,), (3, 2), (1, 4), (2, 1, 3))
_EPS = (1e-6, 1e-5, 0.0, 1.0, 1e-30)


class Place(NamedTuple):
    """Where the rows of a tensor lie: elements between them, elements before the first, rows left out per dimension."""

    row_gap: int = 0
    offset: int = 0
    gap: int = 0


Places = tuple[tuple[str, Place], ...]


@dataclass(frozen=True)
class Config:
    """The choices that a kernel is compiled for, except strides and alignment.

    Attributes:
        op: one of `OPS`.
        dtype: that of the input.
        hidden_size: the length of a row of the output.
        choices: the options of the op, by name.
    """

    op: str
    dtype: str
    hidden_size: int
    choices: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        config: the kernel.
        leading: the leading dimensions.
        kind: the values, one of `INPUT_KINDS`.
        seed: of the values.
        places: where the tensors lie, by name; contiguous unless named.
        framework: whose tensors they are.
        eps: as the op takes it.
        gives_outputs: whether outputs that the op can allocate are given.
    """

    config: Config
    leading: tuple[int, ...] = (3,)
    kind: str = "random"
    seed: int = 0
    places: Places = ()
    framework: str = "numpy"
    eps: float = 1e-6
    gives_outputs: bool = False

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(self.leading)


def draw_config(chance: random.Random) -> Config:
    """Draw the choices of a kernel."""
    name = chance.choice(list(OPS))
    choices = tuple((option, chance.choice(values)) for option, values in OPS[name].options.items())
    sizes = BLOCK_SIZES if "spec" in OPS[name].options else _SIZES
    return Config(name, chance.choice(list(ALL_DTYPES)), chance.choice(sizes), choices)


def draw_places(config: Config, chance: random.Random) -> Places:
    """Draw where the tensors of some calls are: aligned and dense, one element off, or with gaps."""
    ways = (Place(), Place(0, 1), Place(16, 0), Place(1, 0), Place(0, 0, 1))
    way = chance.choice(ways)
    return tuple((name, way) for name in OPS[config.op].tensors if chance.random() < 0.8)


def draw_case(config: Config, places: Places, frameworks: tuple[str, ...], chance: random.Random) -> Case:
    """Draw a call of a kernel, with its tensors in these places."""
    return Case(
        config,
        chance.choice(_LEADING),
        chance.choice(INPUT_KINDS),
        chance.getrandbits(16),
        places,
        chance.choice(frameworks),
        chance.choice(_EPS),
        chance.random() < 0.5,
    )
