"""The GPU's bytes are the CPU target's, for every configuration, input and shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from expected import (
    FORMATS,
    LAYOUTS,
    MXFP4,
    NVFP4,
    Fp4Options,
    assert_all_same,
    assert_same_bytes,
    expected_fp4,
    expected_rmsnorm,
)
from frameworks import to_torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import DTYPES, INPUT_KINDS, make_input, make_weight
from placement import Placed, assert_written_exactly, place, placements

from jitnorm import rmsnorm, rmsnorm_fp4quant

pytestmark = pytest.mark.gpu

SHAPES = [
    *(
        (1, 4096),
        (16, 7168),
        (128, 4096),
        (512, 8192),
        (1024, 4096),
        (1024, 8192),
        (4096, 2048),
        (4096, 4096),
    ),
    *((4096, 8192), (16384, 4096), (16384, 8192), (8192, 16384), (4096, 32768), (65536, 1536), (3, 65536)),
]
ALL_OPTIONS = [
    replace(spec, layout=layout, global_scale=scale)
    for spec in FORMATS
    for layout in LAYOUTS
    for scale in ((None, 0.75) if spec.scale_format == "e4m3" else (None,))
]
SMALL = 96


@pytest.fixture(autouse=True)
def _free_memory() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


def fp4(x: Any, weight: Any, options: Fp4Options, **keywords: Any) -> Any:
    scale = options.given_global_scale()
    given_scale = None if scale is None else torch.from_numpy(scale).to(x.device)
    return rmsnorm_fp4quant(x, weight, global_scale=given_scale, **options.keywords, **keywords)


def check_rmsnorm(x: torch.Tensor, weight: torch.Tensor, what: str) -> None:
    assert_same_bytes(rmsnorm(x.cuda(), weight.cuda()), rmsnorm(x, weight), what)


def check_fp4(x: torch.Tensor, weight: torch.Tensor, options: Fp4Options) -> None:
    assert_all_same(fp4(x.cuda(), weight.cuda(), options), fp4(x, weight, options))


@pytest.mark.parametrize("hidden_size", [1, 2, 15, 16, 17, 384, 511, 512, 513, 1024, 7168, 16383, 16385, 65536])
@pytest.mark.parametrize("weight_dtype", ["same", "float32"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rmsnorm_on_every_kind_of_input(dtype: str, weight_dtype: str, hidden_size: int) -> None:
    weight = to_torch(make_weight(hidden_size, dtype if weight_dtype == "same" else weight_dtype))
    for kind in INPUT_KINDS:
        check_rmsnorm(to_torch(make_input(kind, 9, hidden_size, dtype)), weight, kind)


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=str)
def test_fp4_in_every_format_and_layout(options: Fp4Options) -> None:
    weight = to_torch(make_weight(SMALL, "bfloat16"))
    for kind in INPUT_KINDS:
        for rows in (1, 130):
            check_fp4(to_torch(make_input(kind, rows, SMALL, "bfloat16")), weight, options)


@pytest.mark.parametrize("hidden_size", [64, 160, 384, 1536, 4096, 8224, 16384, 65536])
@pytest.mark.parametrize("weight_dtype", ["same", "float32"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_fp4_on_every_kind_of_input(dtype: str, weight_dtype: str, hidden_size: int) -> None:
    weight = to_torch(make_weight(hidden_size, dtype if weight_dtype == "same" else weight_dtype))
    for options in (NVFP4, ALL_OPTIONS[(hidden_size // 32 + len(dtype)) % len(ALL_OPTIONS)]):
        for kind in INPUT_KINDS:
            check_fp4(to_torch(make_input(kind, 6, hidden_size, dtype)), weight, options)


@pytest.mark.parametrize("global_scale", [2688.0, 1e-20, 1e30, 1e-42, 0.0, -1.5, float("inf"), float("nan")])
def test_any_global_scale(global_scale: float) -> None:
    options, weight = replace(NVFP4, global_scale=global_scale), to_torch(make_weight(SMALL, "bfloat16"))
    for kind in ("random", "zeros", "huge", "nan", "inf"):
        check_fp4(to_torch(make_input(kind, 4, SMALL, "bfloat16")), weight, options)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 1.0, 1e-45, -1.0])
def test_any_eps(eps: float) -> None:
    weight = to_torch(make_weight(SMALL, "float16"))
    for kind in ("random", "zeros", "tiny"):
        x = to_torch(make_input(kind, 4, SMALL, "float16"))
        assert_same_bytes(rmsnorm(x.cuda(), weight.cuda(), eps), rmsnorm(x, weight, eps), kind)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [0, 1, 3, 31, 32, 33, 127, 128, 129, 257])
def test_every_scale_and_all_padding_is_written(rows: int, layout: str) -> None:
    """Several rows of 64 elements share a block of threads; rows of 4096 have one each."""
    for hidden_size in (64, SMALL, 4096):
        options = replace(NVFP4, layout=layout)
        x, weight = make_input("real", rows, hidden_size, "bfloat16"), make_weight(hidden_size, "bfloat16")
        expected = expected_fp4(x, weight, options)
        names = ("y_fp4", "block_scale", "block_scale_unswizzled")
        outputs = {
            name: torch.full(wanted.shape, 0xA5, dtype=torch.uint8, device="cuda")
            for name, wanted in zip(names, expected, strict=False)
        }
        fp4(to_torch(x, "cuda"), to_torch(weight, "cuda"), options, **outputs)
        assert_all_same(tuple(outputs.values()), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}x{shape[1]}")
def test_the_shapes_that_are_benchmarked(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda").bfloat16()
    weight = to_torch(make_weight(shape[1], "bfloat16"))
    on_host, weight_on_gpu = x.cpu(), weight.cuda()
    assert_same_bytes(rmsnorm(x, weight_on_gpu), rmsnorm(on_host, weight))
    for options in (replace(NVFP4, layout="both", global_scale=0.75), MXFP4):
        assert_all_same(fp4(x, weight_on_gpu, options), fp4(on_host, weight, options))


@pytest.mark.parametrize("enable_pdl", [None, True, False])
def test_dependent_launch_changes_no_byte(enable_pdl: bool | None) -> None:
    if enable_pdl and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("programmatic dependent launch begins with compute capability 9.0")
    x, weight = to_torch(make_input("real", 300, 4096, "bfloat16")), to_torch(make_weight(4096, "bfloat16"))
    on_gpu, weight_on_gpu = x.cuda(), weight.cuda()
    for _ in range(50):  # each launch may begin before the last one has ended
        on_gpu = rmsnorm(on_gpu, weight_on_gpu, enable_pdl=enable_pdl)
        x = rmsnorm(x, weight)
    assert_same_bytes(on_gpu, x)
    codes = rmsnorm_fp4quant(on_gpu, weight_on_gpu, enable_pdl=enable_pdl)
    assert_all_same(codes, rmsnorm_fp4quant(x, weight))


@pytest.mark.parametrize("hidden_size", [384, 4096, 16384])
def test_every_run_gives_the_same_bytes(hidden_size: int) -> None:
    x = torch.randn(2048, hidden_size, device="cuda").bfloat16()
    weight = torch.randn(hidden_size, device="cuda").bfloat16()
    first = rmsnorm(x, weight)
    for _ in range(100):
        assert torch.equal(rmsnorm(x, weight).view(torch.int16), first.view(torch.int16))


def test_a_row_s_result_does_not_depend_on_its_batch() -> None:
    x = to_torch(make_input("real", 33, 384, "bfloat16"), "cuda")
    weight = to_torch(make_weight(384, "bfloat16"), "cuda")
    plain, (codes, scales) = rmsnorm(x, weight), rmsnorm_fp4quant(x, weight)
    for i in range(len(x)):
        assert_same_bytes(rmsnorm(x[i], weight), plain[i], f"row {i}")
        assert_all_same(rmsnorm_fp4quant(x[i], weight), (codes[i], scales[i]))


def on_gpu(placed: Placed) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy of a placed array on the GPU: the view, and all bytes around it."""
    view, item = placed.view, placed.view.dtype.itemsize
    buffer = torch.from_numpy(placed.buffer.copy()).cuda()
    dtype = torch.uint8 if view.dtype == np.uint8 else getattr(torch, view.dtype.name)
    offset = (view.ctypes.data - placed.buffer.ctypes.data) // item
    strides = [stride // item for stride in view.strides]
    return torch.as_strided(buffer.view(dtype), view.shape, strides, offset), buffer


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), dtype=st.sampled_from(sorted(DTYPES)))
def test_rmsnorm_of_any_strides_and_alignment(data: st.DataObject, dtype: str) -> None:
    leading = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    where = {name: data.draw(placements(len(leading), (0, 1, 2, 4, 8), False)) for name in ("input", "out")}
    x = place((*leading, 40), DTYPES[dtype], where["input"])
    x.view[...] = make_input("random", int(np.prod(leading)), 40, dtype).reshape(x.view.shape)
    out, weight = place((*leading, 40), DTYPES[dtype], where["out"]), make_weight(40, dtype)
    view, buffer = on_gpu(out)
    rmsnorm(on_gpu(x)[0], to_torch(weight, "cuda"), out=view)
    written = Placed(out.view, buffer.cpu().numpy())
    assert_written_exactly(written, expected_rmsnorm(x.view, weight), where["out"])


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), options=st.sampled_from([NVFP4, replace(MXFP4, layout="128x4")]))
def test_fp4_of_any_strides_and_alignment(data: st.DataObject, options: Fp4Options) -> None:
    leading = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    where = data.draw(placements(len(leading), (0, 1, 2, 4, 8), False))
    where_codes = data.draw(placements(len(leading), (0, 1, 2, 3, 4, 8), False))
    x = place((*leading, SMALL), DTYPES["bfloat16"], where)
    x.view[...] = make_input("random", int(np.prod(leading)), SMALL, "bfloat16").reshape(x.view.shape)
    weight = make_weight(SMALL, "bfloat16")
    codes_expected, scales_expected = expected_fp4(x.view, weight, options)
    codes = place(codes_expected.shape, np.uint8, where_codes)
    view, buffer = on_gpu(codes)
    _, scales = fp4(on_gpu(x)[0], to_torch(weight, "cuda"), options, y_fp4=view)
    assert_written_exactly(Placed(codes.view, buffer.cpu().numpy()), codes_expected, where_codes)
    assert_same_bytes(scales, scales_expected, "block_scale")


def test_in_place() -> None:
    x, weight = make_input("real", 300, 384, "bfloat16"), make_weight(384, "bfloat16")
    tensor = to_torch(x, "cuda")
    assert rmsnorm(tensor, to_torch(weight, "cuda"), out=tensor) is tensor
    assert_same_bytes(tensor, expected_rmsnorm(x, weight))


# Its elements go past 2**31 and its bytes past 2**32, 64 rows before the end.
HUGE_ROWS, HUGE_SIZE = 65536 + 64, 32768


def sampled_rows() -> list[int]:
    random = torch.randint(HUGE_ROWS, (64,), generator=torch.Generator().manual_seed(0)).tolist()
    boundaries = [row + d for row in (16384, 32768, 65536) for d in (-2, -1, 0, 1)]
    return sorted({0, 1, HUGE_ROWS - 2, HUGE_ROWS - 1, *boundaries, *random})


@pytest.fixture(scope="module")
def huge() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    needed = 24 << 30
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.skip("needs 24 GiB of free GPU memory")
    torch.manual_seed(0)
    x = torch.empty(HUGE_ROWS, HUGE_SIZE, dtype=torch.bfloat16, device="cuda")
    for part in x.split(8192):
        part.normal_()
    yield x, to_torch(make_weight(HUGE_SIZE, "bfloat16"))
    del x


def same_after_another_poison(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether all bytes were written: remains of two different poisons would differ."""
    pairs = zip(first.view(torch.uint8).split(8192), second.view(torch.uint8).split(8192), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def poisoned(shape: tuple[int, ...], byte: int) -> torch.Tensor:
    return torch.full(shape, byte, dtype=torch.uint8, device="cuda")


def test_rmsnorm_of_more_than_2_to_the_31_elements(huge: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, weight = huge
    outputs = []
    for byte in (0xA5, 0x5A):
        out = poisoned((HUGE_ROWS, 2 * HUGE_SIZE), byte).view(torch.bfloat16)
        outputs.append(rmsnorm(x, weight.cuda(), out=out))
    assert same_after_another_poison(*outputs)
    rows = sampled_rows()
    assert_same_bytes(outputs[0][rows], rmsnorm(x[rows].cpu(), weight))


@pytest.mark.parametrize("options", [NVFP4, replace(MXFP4, layout="both")], ids=str)
def test_fp4_of_more_than_2_to_the_31_elements(options: Fp4Options, huge: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, weight = huge
    columns = HUGE_SIZE // options.block_size
    padded = -(-HUGE_ROWS // 128) * 128
    runs = []
    for byte in (0xA5, 0x5A):
        outputs = {"y_fp4": poisoned((HUGE_ROWS, HUGE_SIZE // 2), byte)}
        linear = poisoned((HUGE_ROWS, columns), byte)
        if options.layout == "both":
            outputs |= {"block_scale": poisoned((padded * columns,), byte), "block_scale_unswizzled": linear}
        else:
            outputs["block_scale"] = linear
        runs.append(fp4(x, weight.cuda(), options, **outputs))
    assert all(same_after_another_poison(a, b) for a, b in zip(*runs, strict=True))
    rows = sampled_rows()
    on_host = fp4(x[rows].cpu(), weight, replace(options, layout="linear"))
    assert_all_same((runs[0][0][rows], runs[0][-1][rows]), on_host)
    if options.layout == "both":
        tiled = runs[0][1].view(padded // 128, columns // 4, 32, 4, 4).permute(0, 3, 2, 1, 4)
        unswizzled = tiled.reshape(padded, columns)
        assert torch.equal(unswizzled[:HUGE_ROWS], runs[0][2])
        assert not unswizzled[HUGE_ROWS:].any()
