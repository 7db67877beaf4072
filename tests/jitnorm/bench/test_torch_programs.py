"""The programs for torch.compile compute the ops: the codes of the NumPy reference, but for rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from encoded import encoded
from numpy.typing import NDArray

from jitnorm import FP8_GROUP, FP8_TOKEN, MXFP4, MXFP8, NVFP4
from jitnorm.bench.peers import COMPILED
from jitnorm.bench.torch_programs import PROGRAMS
from jitnorm.reference import rmsnorm_f32, round_to, stored_residual

FORMATS = {"fp8 token": FP8_TOKEN, "fp8 128": FP8_GROUP, "nvfp4": NVFP4, "mxfp4": MXFP4, "mxfp8": MXFP8}


def arrays(rows: int = 16, hidden_size: int = 1024) -> dict[str, NDArray[Any]]:
    """Input, residual and weight, by what PROGRAMS calls them; rows differ in size."""
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, rows, hidden_size)) * np.exp2(rng.integers(-6, 6, (rows, 1)))
    found = {"x": x, "r": r, "w": rng.standard_normal(hidden_size)}
    return {name: array.astype(ml_dtypes.bfloat16) for name, array in found.items()}


def wanted(op: str, x: NDArray[Any], r: NDArray[Any], w: NDArray[Any]) -> list[NDArray[Any]]:
    """All that the op writes."""
    is_added = op.startswith("add")
    y = x.astype(np.float32) if op.endswith("alone") else rmsnorm_f32(x, w, residual=r if is_added else None)
    specs = [spec for name, spec in FORMATS.items() if name in op]
    found = list(encoded(y, specs[0]).values()) if specs else [round_to(y, x.dtype)]
    return [array for array in found if array is not None] + [stored_residual(x, r)] * is_added


@pytest.mark.parametrize("op", PROGRAMS)
def test_codes_are_those_of_the_reference_but_for_one_in_a_thousand(op: str) -> None:
    program, inputs = PROGRAMS[op]
    given = arrays()
    tensors = [torch.from_numpy(given[name].view(np.int16)).view(torch.bfloat16) for name in inputs]
    written = program(*tensors)
    for tensor, array in zip(written, wanted(op, **given), strict=True):
        assert tuple(tensor.shape) == array.shape
        if array.dtype == np.float32:
            np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-6)
        else:
            found = tensor.contiguous().view(torch.uint8).numpy()
            assert (found == array.view(np.uint8)).mean() >= 0.999


def test_the_programs_are_those_that_are_offered() -> None:
    assert tuple(PROGRAMS) == COMPILED
