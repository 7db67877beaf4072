"""JAX with jax-tvm-ffi: ops inside jax.jit, and eager calls as JAX programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from expected import NVFP4, Fp4Options, assert_all_same, assert_same_bytes, expected_fp4, expected_rmsnorm
from frameworks import to_jax
from inputs import DTYPES, make_input, make_weight

import jitnorm
from jitnorm import KernelNotWarmError, rmsnorm, rmsnorm_fp4quant
from jitnorm.interop import jax_programs
from jitnorm.launcher import launcher

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi is not installed")
ROWS, SIZE = 5, 96


def tensors(dtype: str = "float16", rows: int = ROWS) -> tuple[Any, Any]:
    return make_input("real", rows, SIZE, dtype), make_weight(SIZE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_inside_of_jit_gives_the_reference_s_bytes(dtype: str) -> None:
    x, weight = tensors(dtype)
    assert_same_bytes(jax.jit(rmsnorm)(to_jax(x), to_jax(weight)), expected_rmsnorm(x, weight))


def test_the_rest_of_a_program_is_computed_before_and_after() -> None:
    x, weight = tensors()
    program = jax.jit(lambda a, w: rmsnorm(a[::-1] * 2, w) + 1)
    assert_same_bytes(program(to_jax(x), to_jax(weight)), expected_rmsnorm(x[::-1] * 2, weight) + np.float16(1))


@pytest.mark.parametrize("layout", ["linear", "128x4", "both"])
def test_several_outputs_and_an_input_that_follows_them(layout: str) -> None:
    options = Fp4Options(layout=layout, global_scale=0.75)
    x, weight = tensors("bfloat16")
    scale = to_jax(options.given_global_scale())

    def program(a: Any, w: Any, s: Any) -> Any:
        return rmsnorm_fp4quant(a, w, global_scale=s, **options.keywords)

    outputs = jax.jit(program)(to_jax(x), to_jax(weight), scale)
    assert_all_same(outputs, expected_fp4(x, weight, options))


FP8_TENSOR = jitnorm.QuantSpec("e4m3", "tensor", "f32")
# Each with inputs, outputs or dtypes of its own.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "fp8 token": lambda x, w: jitnorm.norm_quantize(x, w, spec=jitnorm.FP8_TOKEN),
    "fp8 tensor found": lambda x, w: jitnorm.quantize(x, spec=FP8_TENSOR, scale="tensor"),
    "mxfp8": lambda x, w: jitnorm.quantize(x, spec=jitnorm.MXFP8),
    "nvfp4 by row": lambda x, w: jitnorm.norm_quantize(x, w, spec=jitnorm.NVFP4, global_scale="row"),
    "swiglu": lambda x, w: jitnorm.silu_and_mul_quantize(x, spec=jitnorm.MXFP4),
    "decoded": lambda x, w: jitnorm.dequantize(jitnorm.quantize(x, spec=jitnorm.NVFP4), dtype="float32"),
    "amax": lambda x, w: jitnorm.compute_amax(x),
}


def arrays_of(result: Any) -> list[Any]:
    """The arrays in an op's result."""
    if isinstance(result, jitnorm.QuantizedTensor):
        found = [result.data, result.scale, result.row_scale, result.tensor_scale, result.amax]
        return [each for each in found if each is not None]
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize("name", CALLS)
def test_an_op_gives_the_bytes_of_numpy_s_call(name: str) -> None:
    x, weight = make_input("real", ROWS, 128, "float16"), make_weight(128, "float16")
    expected = [np.asarray(each) for each in arrays_of(CALLS[name](x, weight))]
    eager = arrays_of(CALLS[name](to_jax(x), to_jax(weight)))
    traced = jax.jit(lambda a, w: arrays_of(CALLS[name](a, w)))(to_jax(x), to_jax(weight))
    assert expected
    assert len(expected) == len(eager) == len(traced)
    for outputs in (eager, traced):
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(output).view(np.uint8), wanted.view(np.uint8))


def test_the_number_of_an_op_is_part_of_its_program() -> None:
    x, weight = tensors()
    a, w = to_jax(x), to_jax(weight)
    for eps in (1e-6, 1.0, 1e-6):
        assert_same_bytes(rmsnorm(a, w, eps), expected_rmsnorm(x, weight, eps))


def test_an_empty_batch_inside_of_jit() -> None:
    x, weight = tensors(rows=0)
    codes, scales = jax.jit(rmsnorm_fp4quant)(to_jax(x), to_jax(weight))
    assert (codes.shape, scales.shape) == ((0, SIZE // 2), (0, SIZE // 16))


def test_wrong_tensors_are_refused_by_name_before_anything_runs() -> None:
    x, weight = tensors()
    for call in (rmsnorm, jax.jit(rmsnorm)):
        with pytest.raises(ValueError, match=r"weight: shape is \(95,\), expected \(96,\)"):
            call(to_jax(x), to_jax(weight[:-1]))
        with pytest.raises(ValueError, match="input dtype: is 'int32'"):
            call(to_jax(x.astype(np.int32)), to_jax(weight))


def test_a_kernel_that_is_not_warm_is_an_error_of_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    x, weight = make_input("real", ROWS, 1111, "float16"), make_weight(1111, "float16")
    with pytest.raises(KernelNotWarmError, match="hidden_size=1111"):
        jax.jit(rmsnorm)(to_jax(x), to_jax(weight))


def test_a_program_is_known_by_what_it_runs() -> None:
    """JAX may store compiled programs on disk, where another process must not mistake one kernel for another."""
    calls = ((*tensors(), 1e-6), (*tensors(), 1e-5), (*tensors("bfloat16"), 1e-6), (*tensors(), 1e-6))
    programs = [jax.jit(rmsnorm, static_argnums=2).lower(to_jax(x), to_jax(w), eps).as_text() for x, w, eps in calls]
    names = [text.partition('@"jitnorm ')[2].partition('"')[0] for text in programs]
    assert all(names)
    assert names[0] == names[3]
    assert len(set(names)) == 3


def test_a_bound_kernel_takes_its_arguments_in_the_order_that_it_was_told() -> None:
    x, weight = tensors()
    kernel = launcher().bind(jitnorm.get_kernel(f"rmsnorm:hidden_size={SIZE},input=float16"), (1, 0, 2), (1e-6,))
    out = np.empty_like(x)
    kernel(weight, x, out)
    assert_same_bytes(out, expected_rmsnorm(x, weight))
    with pytest.raises(TypeError, match="expected 3 arguments; got 2"):
        kernel(weight, x)


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(jax_programs, "is_available", lambda: False)
    jax_programs.program.cache_clear()
    yield
    assert jax_programs.program.cache_info().currsize == 0


@pytest.mark.usefixtures("without_programs")
def test_without_jax_tvm_ffi_eager_calls_give_the_same_bytes() -> None:
    x, weight = tensors("bfloat16")
    assert_same_bytes(rmsnorm(to_jax(x), to_jax(weight)), expected_rmsnorm(x, weight))
    outputs = rmsnorm_fp4quant(to_jax(x), to_jax(weight), **NVFP4.keywords)
    assert_all_same(outputs, expected_fp4(x, weight, NVFP4))


@pytest.mark.usefixtures("without_programs")
@pytest.mark.parametrize("name", ["input", "weight"])
def test_without_jax_tvm_ffi_traced_arrays_are_refused_with_the_remedy(name: str) -> None:
    x, weight = tensors()
    given = {"input": to_jax(x), "weight": to_jax(weight)}

    def program(traced: Any) -> Any:
        return rmsnorm(**{**given, name: traced})

    with pytest.raises(TypeError, match=rf"{name}: is traced by jax\.jit.*pip install 'jitnorm\[jax\]'"):
        jax.jit(program)(given[name])
