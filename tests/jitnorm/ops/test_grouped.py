"""The inputs of grouped GEMMs: the counted rows of each matrix, and the separate tiles of their scales."""

# ruff: noqa: E501 - in the table below a line is a case

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expected import as_bytes, assert_same_bytes
from frameworks import CPU_FRAMEWORKS
from inputs import make_input
from jitnorm.kernels.quant_spec import NVFP4

from jitnorm import (
    mxfp8_grouped_quantize,
    mxfp8_quantize,
    quantize,
    scaled_fp4_grouped_quantize,
    silu_and_mul_quantize,
    silu_and_mul_scaled_nvfp4_experts_quantize,
)

COUNTS = np.array([0, 200, 131], np.int32)


def matrices(size: int) -> Any:
    return make_input("random", 3 * 200, size, "float16").reshape(3, 200, size)


def ones(*shape: int, dtype: Any = np.float16) -> Any:
    return np.ones(shape, dtype)


def to_bytes(tensor: Any) -> Any:
    """The bytes of a tensor with one-byte elements, whatever its strides."""
    if isinstance(tensor, np.ndarray):
        return tensor.view(np.uint8)
    if type(tensor).__module__.startswith("jax"):
        return np.asarray(tensor).view(np.uint8)
    if type(tensor).__module__.startswith("tvm_ffi"):
        tensor = torch.from_dlpack(tensor)
    return tensor.view(torch.uint8).numpy()


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_scaled_fp4_grouped_quantize_takes_the_tiles_apart(name: str) -> None:
    convert = CPU_FRAMEWORKS[name]
    scale = np.array([0.5, 1.0, 2.0], np.float32)
    x = matrices(96)
    codes, scales = scaled_fp4_grouped_quantize(convert(x), convert(COUNTS), convert(scale))
    assert (tuple(codes.shape), tuple(scales.shape)) == ((200, 48, 3), (32, 4, 2, 4, 2, 3))
    assert str(scales.dtype).endswith("float8_e4m3fn")
    if name != "jax":
        memory = codes if name == "numpy" else torch.from_dlpack(codes)
        strides = memory.strides if name == "numpy" else memory.stride()
        assert tuple(strides) == (48, 1, 200 * 48)
    got_codes, got_scales = to_bytes(codes), to_bytes(scales)
    expected = quantize(x, spec=NVFP4, global_scale=scale, batched=True)
    for b, count in enumerate(COUNTS):
        assert_same_bytes(got_codes[:count, :, b], as_bytes(expected.data[b, :count]))
        for m in range(count):
            row = got_scales[m % 32, m % 128 // 32, m // 128, :, :, b]  # (k % 4, k // 4)
            assert_same_bytes(row.T.ravel()[:6], expected.scale[b, m])
            assert not row.T.ravel()[6:].any()


def test_experts_are_gated_first() -> None:
    scale = np.array([0.5], np.float32)
    x = matrices(192)
    codes, scales = silu_and_mul_scaled_nvfp4_experts_quantize(x, COUNTS, scale)
    assert (codes.shape, scales.shape) == ((200, 48, 3), (32, 4, 2, 4, 2, 3))
    got_scales = to_bytes(scales)
    for b, count in enumerate(COUNTS):
        alone = silu_and_mul_quantize(x[b], spec=NVFP4, global_scale=scale)
        assert_same_bytes(codes[:count, :, b], as_bytes(alone.data[:count]))
        for m in range(count):
            row = got_scales[m % 32, m % 128 // 32, m // 128, :, :, b]
            assert_same_bytes(row.T.ravel()[:6], alone.scale[m])


def good() -> dict[str, Any]:
    return {"a": ones(3, 5, 64), "mask": ones(3, dtype=np.int32), "a_global_sf": ones(1, dtype=np.float32)}


BAD: list[tuple[str, dict[str, Any], str, Any]] = [
    ("a_none", {"a": None}, "a: is .*None.*; expected a tensor", TypeError),
    ("a_matrix", {"a": ones(5, 64)}, r"a: has 2 dimensions; expected \(B, M, K\)", ValueError),
    ("a_size", {"a": ones(3, 5, 40)}, "a: its last dimension .* is 40, not a multiple of block_size 16", ValueError),
    ("a_integers", {"a": ones(3, 5, 64, dtype=np.int32)}, "a dtype: is 'int32'", ValueError),
    ("a_stride", {"a": ones(3, 5, 128)[..., ::2]}, "a: the stride of its last dimension is 2", ValueError),
    ("mask_none", {"mask": None}, "mask: is .*None.*; expected a tensor", TypeError),
    ("mask_dtype", {"mask": ones(3, dtype=np.int64)}, "mask: dtype is int64, expected int32", ValueError),
    ("mask_size", {"mask": ones(4, dtype=np.int32)}, r"mask: shape is \(4,\), expected \(3,\)", ValueError),
    ("mask_rank", {"mask": ones(3, 1, dtype=np.int32)}, r"mask: shape is \(3, 1\), expected \(3,\)", ValueError),
    ("mask_stride", {"mask": ones(6, dtype=np.int32)[::2]}, "mask: the stride of its last dimension is 2, expected 1", ValueError),
    ("scales", {"a_global_sf": ones(2, dtype=np.float32)}, r"a_global_sf: shape is \(2,\), expected \(3,\)", ValueError),
    ("scale_rank", {"a_global_sf": ones(3, 1, dtype=np.float32)}, r"a_global_sf: shape is \(3, 1\), expected \(3,\)", ValueError),
    ("scale_dtype", {"a_global_sf": ones(1)}, "a_global_sf: dtype is float16, expected float32", ValueError),
    ("four_over_six", {"nvfp4_4over6": True}, "nvfp4_4over6: is a bool; expected None or", TypeError),
    ("pdl", {"enable_pdl": True}, "enable_pdl: is True, but cpu has no", ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message", "error"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
def test_bad_input_is_refused(change: dict[str, Any], message: str, error: Any) -> None:
    with pytest.raises(error, match=message):
        scaled_fp4_grouped_quantize(**(good() | change))


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
@pytest.mark.parametrize("size", [96, 256])
def test_mxfp8_grouped_quantize_has_the_bytes_of_each_matrix_alone(size: int, name: str) -> None:
    convert = CPU_FRAMEWORKS[name]
    x = matrices(size)
    codes, scales = mxfp8_grouped_quantize(convert(x), convert(COUNTS))
    columns = -(-size // 128) * 128
    assert (tuple(codes.shape), tuple(scales.shape)) == ((200, columns, 3), (32, 4, 2, 4, columns // 128, 3))
    found = to_bytes(scales).transpose(5, 2, 4, 0, 1, 3)
    for b, count in enumerate(COUNTS):
        alone, tiles = mxfp8_quantize(x[b], alignment=128)
        assert_same_bytes(to_bytes(codes)[:count, :, b], as_bytes(alone)[:count])
        wanted = as_bytes(tiles).reshape(found.shape[1:])
        for row in range(count):
            at = row // 128, slice(None), row % 32, row % 128 // 32
            assert_same_bytes(found[b][at], wanted[at])


def test_mxfp8_grouped_quantize_refuses_what_is_no_batch() -> None:
    with pytest.raises(ValueError, match=r"a: has 2 dimensions; expected \(B, M, K\)"):
        mxfp8_grouped_quantize(ones(2, 64), np.ones(2, np.int32))
    with pytest.raises(ValueError, match=r"a: .*48"):
        mxfp8_grouped_quantize(ones(2, 3, 48), np.ones(2, np.int32))
    with pytest.raises(ValueError, match="backend: is 'cuda'; allowed are 'cutile', 'cake'"):
        mxfp8_grouped_quantize(ones(2, 3, 64), np.ones(2, np.int32), "cuda")
