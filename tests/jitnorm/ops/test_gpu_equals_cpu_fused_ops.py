"""The GPU's bytes are the CPU target's, for the fused ops and every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from encoded import SPECS, assert_same_encoding, given_keywords, hidden_size_of
from expected import MXFP4, NVFP4, Fp4Options, assert_all_same, assert_same_bytes
from frameworks import to_torch
from inputs import ALL_DTYPES, INPUT_KINDS, make_input, make_weight
from jitnorm.kernels.quant_spec import FP8_GROUP, FP8_TOKEN, MXFP8, QuantSpec
from jitnorm.kernels.quant_spec import NVFP4 as NVFP4_SPEC

import jitnorm

pytestmark = pytest.mark.gpu

FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
ROW_NVFP4 = NVFP4_SPEC.with_global_scale("row")
# Both sides of what a block's registers hold: 32768 with a residual or float32, else 65536.
LONG = [16384, 32768, 65536, 131072, 262144]
# Of blocks of three and six chunks: in one warp, across warps, in a cluster.
CROSSING = [1440, 4896, 36864, 98304, 262080]


@pytest.fixture(autouse=True)
def _free_memory() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


def make(kind: str, rows: int, size: int, dtype: str, seed: int = 0) -> torch.Tensor:
    return to_torch(make_input(kind, rows, size, dtype, seed))


def both(*tensors: Any) -> Iterator[list[Any]]:
    """The tensors' copies on the CPU, then those on the GPU."""
    for device in ("cpu", "cuda"):
        yield [None if t is None else t.clone().to(device) for t in tensors]


def on(device: Any) -> Callable[[Any], Any]:
    return lambda array: to_torch(array, device)


@pytest.mark.parametrize(("number", "spec"), list(enumerate(SPECS)), ids=str)
def test_quantize(number: int, spec: QuantSpec) -> None:
    dtype, size = list(ALL_DTYPES)[number % 3], hidden_size_of(spec)
    for kind in INPUT_KINDS:
        for rows in (1, 130):
            x = make(kind, rows, size, dtype)
            expected = jitnorm.quantize(x, **given_keywords(spec, on("cpu")))
            assert_same_encoding(jitnorm.quantize(x.cuda(), **given_keywords(spec, on("cuda"))), expected, kind)


@pytest.mark.parametrize(("number", "spec"), list(enumerate(SPECS)), ids=str)
def test_norm_quantize(number: int, spec: QuantSpec) -> None:
    dtype, size = list(ALL_DTYPES)[number % 3], hidden_size_of(spec)
    unit_bias, adds, keeps = number % 2 == 1, number // 2 % 2 == 1, number // 4 % 2 == 1
    weight = to_torch(make_weight(size, "float32" if number % 5 == 0 else dtype))
    for kind in INPUT_KINDS:
        x, residual = make(kind, 33, size, dtype), make("random", 33, size, dtype, 3) if adds else None
        runs = []
        for x_, weight_, residual_, kept in both(x, weight, residual, torch.zeros_like(x) if keeps else None):
            keywords = given_keywords(spec, on(x_.device))
            q = jitnorm.norm_quantize(x_, weight_, residual=residual_, unit_bias=unit_bias, y_out=kept, **keywords)
            runs.append((q, residual_, kept))
        (on_cpu, *cpu_rest), (on_gpu, *gpu_rest) = runs
        assert_same_encoding(on_gpu, on_cpu, kind)
        for got, wanted in zip(gpu_rest, cpu_rest, strict=True):
            if wanted is not None:
                assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        *product([ROW_NVFP4, MXFP8, FP8_TOKEN, FP8_GROUP.with_layout("column4")], LONG),
        *product([QuantSpec("e4m3", 48, "f32", "column4"), QuantSpec("int8", 96, "f32")], CROSSING),
    ],
    ids=str,
)
@pytest.mark.parametrize("adds", [False, True])
def test_long_rows_in_every_kind_of_scale(spec: QuantSpec, adds: bool, size: int) -> None:
    dtype = "bfloat16" if size % 3 else "float32"
    weight = to_torch(make_weight(size, dtype))
    for kind in ("random", "nan", "huge", "spiky"):
        x, residual = make(kind, 3, size, dtype), make("random", 3, size, dtype, 3) if adds else None
        runs = []
        for x_, weight_, residual_ in both(x, weight, residual):
            q = jitnorm.norm_quantize(x_, weight_, residual=residual_, **given_keywords(spec, on(x_.device)))
            runs.append((q, residual_))
        assert_same_encoding(runs[1][0], runs[0][0], kind)
        if adds:
            assert_same_bytes(runs[1][1], runs[0][1], kind)


@pytest.mark.parametrize("size", [1, 17, 384, 513, 4096, *LONG])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("op", [jitnorm.fused_add_rmsnorm, jitnorm.gemma_fused_add_rmsnorm])
def test_fused_add_rmsnorm(op: Callable[..., None], dtype: str, size: int) -> None:
    weight = to_torch(make_weight(size, dtype))
    for kind in INPUT_KINDS if size < 16384 else ("random", "nan", "huge"):
        runs = list(both(make(kind, 5, size, dtype), make("random", 5, size, dtype, 3), weight))
        for tensors in runs:
            op(*tensors)
        for i, name in enumerate(("input", "residual")):
            assert_same_bytes(runs[1][i], runs[0][i], f"{name} of {kind}")


@pytest.mark.parametrize("size", [17, 384, 4096, 131072])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("op", [jitnorm.rmsnorm, jitnorm.gemma_rmsnorm])
def test_norms_alone(op: Callable[..., Any], dtype: str, size: int) -> None:
    weight = to_torch(make_weight(size, dtype))
    for kind in INPUT_KINDS:
        x = make(kind, 5, size, dtype)
        assert_same_bytes(op(x.cuda(), weight.cuda()), op(x, weight), kind)


@pytest.mark.parametrize("name", ["rows", "columns", "unaligned"])
def test_a_view_s_update_arrives_in_its_tensor(name: str) -> None:
    cuts: dict[str, Callable[[Any], Any]] = {
        "rows": lambda t: t[:, 1::2, :64],
        "columns": lambda t: t[:, :4, 64:128],
        "unaligned": lambda t: t[:, :4, 3:67],
    }
    whole = [make("random", 24, 200, "bfloat16", seed).reshape(3, 8, 200) for seed in (0, 1)]
    weight = to_torch(make_weight(64, "bfloat16"))
    runs = list(both(*whole, weight))
    for x, residual, weight_ in runs:
        jitnorm.fused_add_rmsnorm(cuts[name](x), cuts[name](residual), weight_)
    for got, wanted in zip(runs[1][:2], runs[0][:2], strict=True):
        assert_same_bytes(got, wanted, name)


@pytest.mark.parametrize("options", [NVFP4, MXFP4, Fp4Options(layout="both", global_scale=0.75)], ids=str)
@pytest.mark.parametrize("size", [96, 4096, 65536])
def test_add_rmsnorm_fp4quant(size: int, options: Fp4Options) -> None:
    weight = to_torch(make_weight(size, "bfloat16"))
    for kind in ("random", "nan", "inf", "spiky"):
        runs = []
        for x, residual, weight_, kept in both(
            make(kind, 9, size, "bfloat16"), make("random", 9, size, "bfloat16", 3), weight,
            torch.zeros(9, size, dtype=torch.bfloat16),
        ):  # fmt: skip
            scale = options.given_global_scale()
            given = None if scale is None else to_torch(scale, x.device)
            codes = jitnorm.add_rmsnorm_fp4quant(
                x, residual, weight_, global_scale=given, y_out=kept, **options.keywords
            )
            runs.append((codes, residual, kept))
        assert_all_same(runs[1][0], runs[0][0])
        for got, wanted in zip(runs[1][1:], runs[0][1:], strict=True):
            assert_same_bytes(got, wanted, kind)


@pytest.mark.parametrize("element", FP8)
@pytest.mark.parametrize("size", [17, 384, 4096, 131072])
@pytest.mark.parametrize("adds", [False, True])
def test_fp8_by_a_given_scale(adds: bool, size: int, element: str) -> None:
    weight, scale = to_torch(make_weight(size, "float16")), torch.tensor([0.03])
    op = jitnorm.fused_add_rmsnorm_quant if adds else jitnorm.gemma_rmsnorm_quant
    for kind in INPUT_KINDS if size < 16384 else ("random", "nan"):
        runs = []
        for x, residual, weight_, scale_ in both(
            make(kind, 5, size, "float16"), make("random", 5, size, "float16", 3), weight, scale
        ):
            out = torch.empty(x.shape, dtype=FP8[element], device=x.device)
            op(out, x, *([residual] if adds else []), weight_, scale_)
            runs.append((out, residual))
        for got, wanted in zip(runs[1], runs[0], strict=True):
            assert_same_bytes(got, wanted, kind)


def test_a_residual_on_another_device_is_refused() -> None:
    x, weight = torch.ones(2, 64).half().cuda(), torch.ones(64).half().cuda()
    with pytest.raises(ValueError, match="residual: is on cpu, expected cuda:0, where input is"):
        jitnorm.fused_add_rmsnorm(x, torch.ones(2, 64).half(), weight)
    assert (x == 1).all()
