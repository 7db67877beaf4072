"""Digests of outputs that must never change: a new one is a new version of the numerics.

`pytest -n 0 tests/golden --update-golden` rewrites them from the reference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoded import GIVEN, encoded, found_outputs, given_keywords, normalized
from expected import expected_fp4, expected_rmsnorm
from frameworks import to_torch_cuda
from golden_cases import Case, QuantCase, all_cases, digest, quant_cases, splitmix64
from golden_ops import OPS, OpCase

from jitnorm import norm_quantize, quantize, rmsnorm, rmsnorm_fp4quant

FILE = Path(__file__).with_name("digests.json")
CASES: list[Case | OpCase] = [*all_cases(), *quant_cases(), *OPS]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def stored() -> dict[str, str]:
    digests: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return digests


def reference_digest(case: Case | OpCase) -> str:
    if isinstance(case, OpCase):
        return digest(case.expected())
    if isinstance(case, QuantCase):
        y = case.input().astype(np.float32)
        if case.is_fused:
            y = normalized(case.input(), case.weight(), case.residual(), unit_bias=True)
        return digest(tuple(encoded(y, case.spec, GIVEN).values()))
    if case.options is None:
        return digest((expected_rmsnorm(case.input(), case.weight()),))
    return digest(expected_fp4(case.input(), case.weight(), case.options))


def op_digest(case: Case | OpCase, make: Any) -> str:
    if isinstance(case, OpCase):
        return digest(case.call(make))
    x, weight = make(case.input()), make(case.weight())
    if isinstance(case, QuantCase):
        keywords = given_keywords(case.spec, make)
        if case.is_fused:
            q = norm_quantize(x, weight, residual=make(case.residual()), unit_bias=True, **keywords)
        else:
            q = quantize(x, **keywords)
        return digest(found_outputs(q))
    if case.options is None:
        return digest((rmsnorm(x, weight),))
    scale = case.options.given_global_scale()
    given = None if scale is None else make(scale)
    return digest(rmsnorm_fp4quant(x, weight, global_scale=given, **case.options.keywords))


def test_the_reference_gives_the_stored_digests(pytestconfig: pytest.Config) -> None:
    digests = {str(case): reference_digest(case) for case in CASES}
    if pytestconfig.getoption("--update-golden"):
        FILE.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    assert stored() == digests


@every_case
def test_the_cpu_gives_the_stored_digests(case: Case | OpCase) -> None:
    assert op_digest(case, lambda array: array) == stored()[str(case)]


@pytest.mark.gpu
@every_case
def test_the_gpu_gives_the_stored_digests(case: Case | OpCase) -> None:
    assert op_digest(case, to_torch_cuda) == stored()[str(case)]


def test_the_generator_is_splitmix64() -> None:
    """Its published first numbers for the seed 1234567."""
    assert splitmix64(1234567, 3).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_inputs_hold_what_breaks_kernels() -> None:
    for dtype in ("float16", "bfloat16"):
        x = Case(384, dtype, dtype).input().astype(np.float32)
        assert np.isinf(x).any()
        assert np.isnan(x).any()
        assert (np.abs(x[2]) < 1e-5).all()
        assert np.isfinite(x[[0, 1, 2]]).all()
        assert ((np.abs(x[0]) >= 0.125) & (np.abs(x[0]) < 32)).all()
    weight = Case(384, "float16", "float32").weight()
    assert ((np.abs(weight) >= 0.125) & (np.abs(weight) < 32)).all()
