"""The kernels that calls of drawn lengths get by the forms of a GPU, run on the host, write the CPU target's bytes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from cute_on_host import assert_same
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.row_classes import classes_of
from jitnorm.kernels.schedule import for_many_rows
from jitnorm.kernels.target import Target

from jitnorm.bench.cases import op_named
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.nvrtc import Nvrtc
from jitnorm.tune.cases import OPS
from jitnorm.tuning import forms_of, schedule_for

try:
    Nvrtc()
except ToolchainMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

HOPPER = Target("sm_90a")
SHORTEST, LONGEST = 528, 12288


def is_of_rows_alone(name: str) -> bool:
    """Whether a row of the output depends on that row of the inputs alone, as the tensors of these tests require."""
    config = op_named(name).config(4096)
    return not (config.streams or config.counts_rows or config.experts or config.batched or config.amax_parts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name in OPS if is_of_rows_alone(name)])
def test_the_schedule_by_a_form_gives_the_bytes_of_the_cpu(name: str, seed: int) -> None:
    op, numbers = op_named(name), Random(f"{name} {seed}")
    length = SHORTEST * (LONGEST / SHORTEST) ** numbers.random()
    config = replace(op.config(round_up(int(length), max(16, op.multiples[1]))), pdl=True)
    row_class = numbers.choice([*classes_of(config.hidden_size)])
    config = for_many_rows(config, HOPPER) if row_class == "many" else config
    schedule = schedule_for(config, HOPPER, row_class, {}, forms_of("sm_90a", "shipped"))
    kind, rows = numbers.choice(("random", "nan", "tiny", "huge")), numbers.choice((1, 3))
    assert_same(replace(config, schedule=schedule), HOPPER, rows, kind, is_cuda=True)
