"""Programs of jitnorm.jax.export run in another process, or are refused there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inputs import make_input, make_weight
from python_process import run_python

from jitnorm import rmsnorm, rmsnorm_fp4quant

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi is not installed")
from jitnorm.interop import jax_programs  # noqa: E402
from jitnorm.jax import export  # noqa: E402

X, WEIGHT = make_input("real", 6, 96, "float16"), make_weight(96, "float16")
OTHER_PROCESS = """
import sys
import numpy as np
from jitnorm.jax import deserialize

program = deserialize(open("program", "rb").read())
np.savez("found", *program.call(np.load("x.npy"), np.load("weight.npy")))
"""


@jax.jit
def program(x: Any, weight: Any) -> Any:
    return rmsnorm(x, weight), *rmsnorm_fp4quant(x, weight, is_sf_swizzled_layout=True)


def test_another_process_computes_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers", reason="JAX serializes with flatbuffers")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "weight.npy", WEIGHT)
    (tmp_path / "program").write_bytes(export(program)(X, WEIGHT).serialize())
    run_python(OTHER_PROCESS, cwd=tmp_path)
    wanted = program(X, WEIGHT)
    with np.load(tmp_path / "found.npz") as found:
        assert len(found.files) == len(wanted)
        for a, b in zip(found.values(), wanted, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), np.asarray(b).view(np.uint8))


def test_shapes_without_arrays_are_exported() -> None:
    exported = export(program)(jax.ShapeDtypeStruct(X.shape, X.dtype), jax.ShapeDtypeStruct(WEIGHT.shape, X.dtype))
    assert [each.shape for each in exported.out_avals] == [X.shape, (6, 48), (1024,)]
    for found, wanted in zip(exported.call(X, WEIGHT), program(X, WEIGHT), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_other_calls_of_unknown_stability_are_still_refused() -> None:
    foreign = jax.ffi.ffi_call("another", jax.ShapeDtypeStruct(X.shape, X.dtype))
    with pytest.raises(ValueError, match="Cannot serialize code with custom calls"):
        export(jax.jit(lambda x: rmsnorm(foreign(x), WEIGHT)))(X)


def test_symbolic_dimensions_are_refused_by_name() -> None:
    (rows,) = jax.export.symbolic_shape("rows")
    with pytest.raises(TypeError, match=r"^input: shape is \(rows, 96\); .* without symbols"):
        export(jax.jit(rmsnorm))(jax.ShapeDtypeStruct((rows, 96), X.dtype), WEIGHT)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("jitnorm rmsnorm:hidden_size=96,input=float16 for sm_90a 0,1,2 1e-06", "program: is for sm_90a, but"),
        ("jitnorm rmsnorm:hidden_size=96,unknown=1 for cpu 0,1,2 1e-06", "program: calls .*; export it again"),
        ("jitnorm 0123456789abcdef", "program: calls .*; export it again"),
    ],
)
def test_a_kernel_for_something_else_is_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        jax_programs.register_by_name(name, jax.devices("cpu")[0])
    assert name not in jax_programs.known
