"""Every framework's tensors give the same bytes, in the framework's own types."""

from __future__ import annotations

import numpy as np
import pytest
from expected import FORMATS, Fp4Options, assert_all_same, assert_same_bytes, expected_fp4, expected_rmsnorm
from frameworks import CPU_FRAMEWORKS
from inputs import DTYPES, make_input, make_weight

from jitnorm import rmsnorm, rmsnorm_fp4quant

ROWS, SIZE = 5, 96

# Where a framework has no dtype of that name, its uint8 holds the bytes.
DTYPES_OF = {
    "numpy": {"y_fp4": "uint8", "e4m3": "float8_e4m3fn", "ue8m0": "uint8"},
    "torch": {"y_fp4": "torch.float4_e2m1fn_x2", "e4m3": "torch.float8_e4m3fn", "ue8m0": "torch.uint8"},
    "jax": {"y_fp4": "uint8", "e4m3": "float8_e4m3fn", "ue8m0": "uint8"},
    "tvm_ffi": {"y_fp4": "float4_e2m1fnx2", "e4m3": "float8_e4m3fn", "ue8m0": "float8_e8m0fnu"},
}


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight_dtype", ["same", "float32"])
def test_rmsnorm(framework: str, dtype: str, weight_dtype: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, weight = make_input("real", ROWS, SIZE, dtype), make_weight(SIZE, dtype)
    if weight_dtype == "float32":
        weight = weight.astype(np.float32)
    out = rmsnorm(make(x), make(weight))
    assert type(out) is type(make(x))
    assert str(out.dtype) == str(make(x).dtype)
    assert tuple(out.shape) == x.shape
    assert_same_bytes(out, expected_rmsnorm(x, weight))


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
@pytest.mark.parametrize("options", [*FORMATS, Fp4Options(layout="both", global_scale=0.75)], ids=str)
def test_rmsnorm_fp4quant(framework: str, options: Fp4Options) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, weight = make_input("real", ROWS, SIZE, "bfloat16"), make_weight(SIZE, "bfloat16")
    scale = options.given_global_scale()
    given = None if scale is None else make(scale)
    outputs = rmsnorm_fp4quant(make(x), make(weight), global_scale=given, **options.keywords)
    assert isinstance(outputs, tuple)
    assert_all_same(outputs, expected_fp4(x, weight, options))
    names = DTYPES_OF[framework]
    assert [str(output.dtype) for output in outputs] == [names["y_fp4"]] + [names[options.scale_format]] * (
        len(outputs) - 1
    )
    assert all(type(output) is type(make(x)) for output in outputs)


@pytest.mark.parametrize("framework", CPU_FRAMEWORKS)
def test_an_empty_batch_gives_empty_outputs(framework: str) -> None:
    make = CPU_FRAMEWORKS[framework]
    x, weight = make_input("real", 0, SIZE, "float16"), make_weight(SIZE, "float16")
    assert tuple(rmsnorm(make(x), make(weight)).shape) == (0, SIZE)
    codes, scales = rmsnorm_fp4quant(make(x), make(weight))
    assert (tuple(codes.shape), tuple(scales.shape)) == ((0, SIZE // 2), (0, SIZE // 16))
