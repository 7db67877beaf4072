"""Random programs have the same results with and without the pass, except for roundings."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import plain_norms
import pytest
import torch
from fused_graphs import ROWS, SIZE, WEIGHT, run, values


def random_program(seed: int) -> Callable[..., Any]:
    """Norms and quantization of random values in a program, any of which later steps may use."""
    draw = random.Random(seed)
    steps = [draw.choice([*plain_norms.NORMS, "add_narrow", "add_wide", "plus", "encode", "given"]) for _ in range(6)]
    places = [(draw.random(), draw.random()) for _ in steps]
    encode = draw.choice(list(plain_norms.FOUND_SCALES.values()))
    norm = draw.choice(list(plain_norms.NORMS.values()))

    def program(*inputs: Any) -> Any:
        rows, others = list(inputs), []
        for step, (first, second) in zip(steps, places, strict=True):
            x, y = rows[int(first * len(rows))], rows[int(second * len(rows))]
            if step in plain_norms.NORMS:
                rows.append(plain_norms.NORMS[step](x, WEIGHT))
            elif step.startswith("add"):
                rows.extend(getattr(plain_norms, step)(norm, x, y, WEIGHT))
            elif step == "plus":
                rows.append(x + 0.5 * y)
            elif step == "encode":
                codes, scale = encode(x)
                others.append(codes.float().view(-1, SIZE) * scale.reshape(-1, 1).repeat_interleave(2, 0)[:1].abs())
                others.append(scale)
            else:
                others.append(plain_norms.static_of_vllm(x, y[0, 0].float().abs() + 1).float())
        return rows[len(inputs) :], others

    return program


@pytest.mark.parametrize("seed", range(12))
def test_what_is_fused_stays_near(seed: int) -> None:
    x, y = values(ROWS, SIZE), values(ROWS, SIZE, seed=1)
    program = random_program(seed)
    leaves = torch.utils._pytree.tree_leaves
    for ours, theirs in zip(leaves(run(program, x, y).result), leaves(program(x, y)), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(
            ours.float(), theirs.float(), rtol=0.2, atol=0.15 * float(theirs.float().abs().max())
        )
