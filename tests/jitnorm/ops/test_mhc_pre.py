"""The streams of hyper-connections before a layer: the reference's bytes, and close to float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cute_on_host import assert_same
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import INPUT_KINDS, make_input
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm import mhc_pre, mhc_pre_with_prenorm
from jitnorm.reference import mhc_pre_f32, round_to

TOKENS = 6
# Elements of a row, streams, dtypes and splits: part of a chunk and several tiles.
CASES = [(40, 3, "float32", 2), (4096, 4, "bfloat16", 1)]
NUMBERS: dict[str, Any] = {"pre_eps": 0.01, "sinkhorn_eps": 1e-4, "post_factor": 2.0}


def tensors(size: int, streams: int, dtype: str, splits: int = 1, kind: str = "random") -> tuple[Any, ...]:
    """Streams, projections, sums of squares, and the scales and bases of logits."""
    mixes = streams * (2 + streams)
    x = make_input(kind, TOKENS * streams, size, dtype).reshape(TOKENS, streams, size)
    projections = make_input(kind, splits * TOKENS, mixes, "float32", seed=1).reshape(splits, TOKENS, mixes)
    squares = np.random.default_rng(size).uniform(1, 2 * size, (splits, TOKENS)).astype(np.float32)
    scale, base = make_input("random", 1, 3, "float32", seed=2)[0], make_input("random", 1, mixes, "float32", seed=3)[0]
    return x, projections, squares, scale, base


@pytest.mark.parametrize(("size", "streams", "dtype", "splits"), CASES)
def test_the_bytes_are_those_of_the_reference(size: int, streams: int, dtype: str, splits: int) -> None:
    for kind in INPUT_KINDS:
        x, projections, squares, scale, base = tensors(size, streams, dtype, splits, kind)
        for found, expected in (
            (
                mhc_pre(x, projections, squares, scale, base, 1000, **NUMBERS),
                mhc_pre_f32(x, projections, scale, base, squares, 1000, **NUMBERS),
            ),
            (
                mhc_pre_with_prenorm(x, projections[0], scale, base, **NUMBERS),
                mhc_pre_f32(x, projections[:1], scale, base, **NUMBERS),
            ),
        ):
            for got, wanted in zip(found, (*expected[:2], round_to(expected[2], x.dtype)), strict=True):
                assert_same_bytes(got, wanted, kind)


def test_it_is_near_what_float64_gives() -> None:
    """The sum of squares is given or computed; the mix after the layer is nearly doubly stochastic."""
    x, projections, _, scale, base = tensors(4096, 4, "bfloat16")
    exact = x.astype(np.float64)
    squares = np.square(exact).sum((1, 2))
    logits = projections[0] / np.sqrt(squares / 16384 + 1e-6)[:, None] * np.repeat(scale, (4, 4, 16)) + base
    before, post, comb = np.split(logits, (4, 8), axis=1)
    comb = np.exp(comb).reshape(TOKENS, 4, 4)
    comb = comb / comb.sum(2, keepdims=True) + 1e-6
    comb /= comb.sum(1, keepdims=True) + 1e-6
    for _ in range(19):
        comb /= comb.sum(2, keepdims=True) + 1e-6
        comb /= comb.sum(1, keepdims=True) + 1e-6
    mixed = np.einsum("ts,tsh->th", 1 / (1 + np.exp(-before)) + 1e-6, exact)
    for found in (
        mhc_pre(x, projections, squares.astype(np.float32)[None], scale, base),
        mhc_pre_with_prenorm(x, projections[0], scale, base),
    ):
        np.testing.assert_allclose(found[0], 1 / (1 + np.exp(-post)), rtol=1e-5, atol=1e-30)
        np.testing.assert_allclose(found[1], comb, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(found[1].sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(found[2].astype(np.float64), mixed, rtol=2**-8, atol=1e-5)


def test_tokens_may_have_several_dimensions_any_stride_or_be_none() -> None:
    x, projections, squares, scale, base = tensors(4096, 4, "bfloat16")
    whole = mhc_pre(x, projections[0], squares[0], scale, base)
    wide, of_layer = np.zeros((2, 3, 5, 4096), x.dtype), np.zeros((2, 3, 8192), x.dtype)
    wide[:, :, :4] = x.reshape(2, 3, 4, 4096)
    given = wide[:, :, :4], projections[0].reshape(2, 3, 24), squares[0].reshape(2, 3), scale, base
    post, comb, mixed = mhc_pre(*given, layer_input=of_layer[..., :4096])
    assert (post.shape, comb.shape, mixed.shape) == ((2, 3, 4), (2, 3, 4, 4), (2, 3, 4096))
    for got, wanted in zip((post, comb, mixed), whole, strict=True):
        assert_same_bytes(np.ascontiguousarray(got).reshape(wanted.shape), wanted)
    assert not of_layer[..., 4096:].any()
    assert mhc_pre(x[:0], projections[0, :0], squares[0, :0], scale, base)[2].shape == (0, 4096)


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same(name: str) -> None:
    given = tensors(4096, 4, "bfloat16")
    for found, wanted in zip(mhc_pre(*map(CPU_FRAMEWORKS[name], given)), mhc_pre(*given), strict=True):
        assert_same_bytes(found, wanted)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, np.zeros((6, 5, 512), np.float16), r"residual: shape is \(..., 5, 512\); expected \(..., n, hidden_size\)"),
        (1, np.zeros((6, 25), np.float32), r"dot_mix: shape is \(6, 25\), expected \(6, 24\)"),
        (1, np.zeros((65, 6, 24), np.float32), "splits: is 65; 1 to 64 is allowed"),
        (2, np.zeros(5, np.float32), r"sqrsum: shape is \(5,\), expected"),
        (3, np.zeros(4, np.float32), r"mhc_scale: shape is \(4,\), expected \(3,\)"),
        (4, np.zeros(24, np.float16), "mhc_base: dtype is float16, expected float32"),
    ],
)
def test_bad_input_is_refused(position: int, value: Any, message: str) -> None:
    given = list(tensors(512, 4, "float16"))
    given[position] = value
    with pytest.raises(ValueError, match=message):
        mhc_pre(*given)


@pytest.mark.parametrize("k", [0, -5])
def test_a_mean_of_no_elements_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=rf"^k: is {k}; expected a positive int"):
        mhc_pre(*tensors(512, 4, "float16"), k=k)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sinkhorn": 101}, "sinkhorn: is 101; 0 to 100 is allowed"),
        ({"splits": 2}, "splits, prenorm: are 2 and False, which need sinkhorn"),
        ({"sinkhorn": 1}, "sinkhorn: is 1, which takes streams, and none of"),
        ({"sinkhorn": 1, "streams": 4, "batched": True}, "sinkhorn: is 1, which takes streams, and none of"),
        ({"sinkhorn": 1, "streams": 4, "prenorm": True, "splits": 2}, "splits: is 2, but with prenorm"),
    ],
)
def test_bad_fields_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig("quantize", 64, **{"activation": "" if "sinkhorn" in options else "silu", **options})


# Rows that share a warp; of a block, held and not.
ON_HOST = (
    "quantize:hidden_size=64,streams=4,sinkhorn=5,splits=2",
    "quantize:hidden_size=1000,streams=3,sinkhorn=2,prenorm=true,input=float16,vector_bytes=8",
    "quantize:hidden_size=7168,streams=4,sinkhorn=2,prenorm=true",
)


@pytest.mark.parametrize("text", ON_HOST)
def test_cuda_writes_what_the_cpu_writes(text: str) -> None:
    assert_same(KernelConfig.parse(text), Target("sm_90a"), 3, "random", is_cuda=True)


def test_blocks_of_several_rows_find_the_factors_of_each() -> None:
    """This includes rows whose factors are NaN."""
    for size in (64, 1024):
        config = KernelConfig.parse(f"quantize:hidden_size={size},streams=2,sinkhorn=2,prenorm=true")
        assert_same(config, Target("sm_90a"), 70, "nan", most_blocks=2, is_cuda=True)


# Rows that share a warp, a block, a cluster: as many as one block has factors of, one more, and several times as many.
FACTORS_BESIDE_ROWS = (
    ("quantize:hidden_size=64,streams=4,sinkhorn=2", (1, 64, 65, 700)),
    ("quantize:hidden_size=600,streams=2,sinkhorn=1,schedule=2x1", (64, 65, 130)),
    ("quantize:hidden_size=600,streams=3,sinkhorn=1,schedule=2x1b2", (65, 70)),
)


@pytest.mark.parametrize(("text", "counts"), FACTORS_BESIDE_ROWS)
def test_each_row_has_its_factors_whichever_block_computes_them(text: str, counts: tuple[int, ...]) -> None:
    for rows in counts:
        assert_same(KernelConfig.parse(text), Target("sm_90a"), rows, "nan", is_cuda=True)


def test_each_of_many_rows_has_its_factors() -> None:
    assert_same(
        KernelConfig.parse("quantize:hidden_size=16,streams=4,sinkhorn=1"),
        Target("sm_90a"),
        33000,
        "random",
        is_cuda=True,
    )


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("size", "streams", "dtype", "splits"),
    [*CASES, (513, 1, "float16", 3), (7168, 4, "bfloat16", 16), (65536, 2, "float32", 1)],
)
def test_the_gpu_s_bytes_are_the_cpu_s(size: int, streams: int, dtype: str, splits: int) -> None:
    for kind in INPUT_KINDS:
        given = tensors(size, streams, dtype, splits, kind)
        x, projections, _, scale, base = given
        on_cpu, on_gpu = (
            (
                *mhc_pre(*(to_torch(each, device) for each in given)),
                *mhc_pre_with_prenorm(*(to_torch(each, device) for each in (x, projections[0], scale, base))),
            )
            for device in ("cpu", "cuda")
        )
        for found, wanted in zip(on_gpu, on_cpu, strict=True):
            assert_same_bytes(found, wanted, kind)
