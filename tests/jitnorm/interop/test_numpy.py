"""NumPy arrays, with the dtypes of ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.ma.mrecords
import pytest
from expected import MXFP4, NVFP4, assert_all_same, assert_same_bytes, expected_fp4, expected_rmsnorm
from inputs import DTYPES, make_input, make_weight

from jitnorm import FP8_TENSOR, quantize, rmsnorm, rmsnorm_fp4quant
from jitnorm.catalogue.norms import RMSNORM
from jitnorm.dispatch import Dispatcher
from jitnorm.ops import run

ROWS, SIZE = 5, 96


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_only_inputs_are_read(dtype: str) -> None:
    x, weight = make_input("real", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
    x.flags.writeable = weight.flags.writeable = False
    assert_same_bytes(rmsnorm(x, weight), expected_rmsnorm(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_run_backwards(dtype: str) -> None:
    x, weight = make_input("real", 6, SIZE, dtype), make_weight(SIZE, dtype)
    for view in (x[::-1], x.reshape(2, 3, SIZE)[::-1, ::-1], x[::-2]):
        assert_same_bytes(rmsnorm(view, weight), expected_rmsnorm(view, weight))


def test_outputs_may_have_the_narrow_dtypes_of_ml_dtypes() -> None:
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    codes = np.zeros((ROWS, SIZE // 2), np.uint8)
    scales = np.zeros((ROWS, SIZE // 16), ml_dtypes.float8_e4m3fn)
    rmsnorm_fp4quant(x, weight, codes, scales)
    assert_all_same((codes, scales), expected_fp4(x, weight, NVFP4))
    powers = np.zeros((ROWS, SIZE // 32), ml_dtypes.float8_e8m0fnu)
    rmsnorm_fp4quant(x, weight, codes, powers, block_size=32)
    assert_all_same((codes, powers), expected_fp4(x, weight, MXFP4))


def test_arrays_that_have_to_be_converted_are_not_tried_as_they_are_each_time() -> None:
    dispatcher, tries = Dispatcher(RMSNORM, None, RMSNORM.fixed), []
    launch = dispatcher.launch
    dispatcher.launch = lambda *arguments: (tries.append(arguments), launch(*arguments))[1]

    def tries_of_a_call(dtype: str) -> int:
        x, weight = make_input("real", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
        out = np.empty_like(x)
        tries.clear()
        run.run(dispatcher, {"input": x, "weight": weight, "out": out, "eps": 1e-6}, None)
        assert_same_bytes(out, expected_rmsnorm(x, weight))
        return len(tries)

    for dtype in ("float16", "bfloat16"):
        tries_of_a_call(dtype)  # learns the kernel, which takes tries of its own
    assert [tries_of_a_call(dtype) for dtype in ("bfloat16", "bfloat16")] == [1, 1]
    assert [tries_of_a_call(dtype) for dtype in ("float16", "float16")] == [1, 1]
    assert [tries_of_a_call(dtype) for dtype in ("bfloat16", "bfloat16")] == [2, 1]


def test_a_subclass_of_ndarray_is_an_array() -> None:
    class Tagged(np.ndarray):  # type: ignore[type-arg]
        pass

    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    assert_same_bytes(rmsnorm(x.view(Tagged), weight), expected_rmsnorm(x, weight))


def test_a_scale_may_be_a_scalar_of_numpy() -> None:
    x = make_input("real", ROWS, SIZE, "float16")
    scale = np.abs(x).max().astype(np.float32) / np.float32(448)
    assert isinstance(scale, np.float32)
    for _ in range(2):
        found = quantize(x, spec=FP8_TENSOR, scale=scale)
        assert_same_bytes(found.data, quantize(x, spec=FP8_TENSOR, scale=scale.reshape(1)).data)
    with pytest.raises(ValueError, match=r"^weight: shape is \(\), expected \(96,\)"):
        rmsnorm(x, np.float16(1))


def test_another_byte_order_is_an_error() -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    out = np.zeros_like(x)
    for name, given in (("input", x), ("weight", weight), ("out", out)):
        for other in (
            given.astype(">f2"),
            given.astype(ml_dtypes.bfloat16).view(np.dtype(ml_dtypes.bfloat16).newbyteorder(">")),
        ):
            with pytest.raises(TypeError, match=rf"^{name}: has a foreign byte order"):
                rmsnorm(**{"input": x, "weight": weight, "out": out, name: other})


@pytest.mark.parametrize("dtype", [[("a", "f2"), ("b", "f2")], "O", "U3", "M8[s]", "V2", "g", "c16"])
def test_what_is_no_number_of_a_kernel_is_refused_by_name(dtype: Any) -> None:
    x, weight = make_input("real", ROWS, SIZE, "float16"), make_weight(SIZE, "float16")
    with pytest.raises(TypeError, match=r"^input: has dtype"):
        rmsnorm(np.zeros((ROWS, SIZE), dtype), weight)
    with pytest.raises(TypeError, match=r"^weight: has dtype"):
        rmsnorm(x, np.zeros(SIZE, dtype))


def test_a_subclass_of_a_masked_array_and_a_dtype_are_no_arrays() -> None:
    weight = make_weight(SIZE, "float16")
    for x in (np.ma.mrecords.fromarrays([np.ones(SIZE)]), np.dtype("f2")):
        with pytest.raises(TypeError, match=r"^input: is a numpy"):
            rmsnorm(x, weight)


def test_a_repeated_call_goes_straight_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = make_input("random", 3, 64, "float16"), make_weight(64, "float16")
    expected = rmsnorm(x, weight)

    def refuse(*_: object) -> None:
        raise AssertionError("the slow path")

    monkeypatch.setattr(run, "_run", refuse)
    assert_same_bytes(rmsnorm(x, weight), expected)
    assert_same_bytes(rmsnorm(x, weight, out=np.empty_like(x)), expected)


def test_strides_of_no_whole_elements_are_refused_by_name() -> None:
    records = np.zeros(ROWS, [("values", np.float16, SIZE), ("mark", np.uint8)])
    with pytest.raises(TypeError, match=r"^input: has strides that are not whole elements of float16; pass a copy"):
        rmsnorm(records["values"], np.ones(SIZE, np.float16))
    one = records["values"][:1]
    assert_same_bytes(rmsnorm(one, np.ones(SIZE, np.float16)), np.zeros((1, SIZE), np.float16))
