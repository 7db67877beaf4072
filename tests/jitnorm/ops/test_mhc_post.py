"""The streams of hyper-connections after a layer: the reference's bytes, and close to float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expected import assert_same_bytes
from frameworks import CPU_FRAMEWORKS, to_torch
from inputs import INPUT_KINDS, make_input

from jitnorm import mhc_post
from jitnorm.reference import mhc_post_f32, round_to

# Part of a chunk, whole chunks, and both; of one to four streams.
CASES = [(1, 4, "float16"), (512, 4, "bfloat16"), (513, 3, "float32"), (1000, 2, "bfloat16"), (40, 1, "float16")]
TOKENS = 6


def tensors(size: int, streams: int, dtype: str, kind: str = "random") -> tuple[Any, ...]:
    rng = np.random.default_rng(size)
    x, residual = make_input(kind, TOKENS, size, dtype), make_input(kind, TOKENS * streams, size, dtype, seed=1)
    layer_mix = rng.standard_normal((TOKENS, streams)).astype(np.float32)
    mix = rng.standard_normal((TOKENS, streams, streams)).astype(np.float32)
    return x, residual.reshape(TOKENS, streams, size), layer_mix, mix


@pytest.mark.parametrize(("size", "streams", "dtype"), CASES)
def test_the_bytes_are_those_of_the_reference(size: int, streams: int, dtype: str) -> None:
    for kind in INPUT_KINDS:
        given = tensors(size, streams, dtype, kind)
        assert_same_bytes(mhc_post(*given), round_to(mhc_post_f32(*given), given[0].dtype), kind)


def test_it_is_near_what_float64_gives() -> None:
    x, residual, layer_mix, mix = tensors(513, 3, "float32")
    exact = layer_mix[..., None] * x[:, None].astype(np.float64) + np.einsum(
        "tij,tih->tjh", mix.astype(np.float64), residual.astype(np.float64)
    )
    np.testing.assert_allclose(mhc_post(x, residual, layer_mix, mix), exact, rtol=1e-5, atol=1e-5)


def test_tokens_may_have_several_dimensions_any_stride_or_be_none() -> None:
    x, residual, layer_mix, mix = tensors(512, 4, "bfloat16")
    whole = mhc_post(x, residual, layer_mix, mix)
    wide_x, wide = np.zeros((2, 3, 600), x.dtype), np.zeros((2, 3, 5, 512), x.dtype)
    wide_x[..., :512], wide[:, :, :4] = x.reshape(2, 3, 512), residual.reshape(2, 3, 4, 512)
    got = mhc_post(wide_x[..., :512], wide[:, :, :4], layer_mix.reshape(2, 3, 4), mix.reshape(2, 3, 4, 4))
    assert got.shape == (2, 3, 4, 512)
    assert_same_bytes(got.reshape(whole.shape), whole)
    assert mhc_post(x[:0], residual[:0], layer_mix[:0], mix[:0]).shape == (0, 4, 512)


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same(name: str) -> None:
    given = tensors(512, 4, "bfloat16")
    assert_same_bytes(mhc_post(*map(CPU_FRAMEWORKS[name], given)), mhc_post(*given))


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (1, np.zeros((6, 5, 512), np.float16), r"residual: shape is \(..., 5, 512\); expected \(..., n, hidden_size\)"),
        (1, np.zeros(512, np.float16), r"residual: shape is \(512,\); expected"),
        (0, np.zeros((6, 500), np.float16), r"x: shape is \(6, 500\), expected \(6, 512\)"),
        (2, np.zeros((6, 3), np.float32), r"post_layer_mix: shape is \(6, 3\), expected \(6, 4\)"),
        (3, np.zeros((6, 16), np.float32), r"comb_res_mix: shape is \(6, 16\), expected \(6, 4, 4\)"),
        (3, np.zeros((6, 4, 4), np.float16), "comb_res_mix: dtype is float16, expected float32"),
    ],
)
def test_bad_input_is_refused(position: int, value: Any, message: str) -> None:
    given = list(tensors(512, 4, "float16"))
    given[position] = value
    with pytest.raises(ValueError, match=message):
        mhc_post(*given)


@pytest.mark.gpu
@pytest.mark.parametrize(("size", "streams", "dtype"), [*CASES, (7168, 4, "bfloat16")])
def test_the_gpu_s_bytes_are_the_cpu_s(size: int, streams: int, dtype: str) -> None:
    for kind in INPUT_KINDS:
        given = tensors(size, streams, dtype, kind)
        runs = [mhc_post(*(to_torch(each, device) for each in given)) for device in ("cpu", "cuda")]
        assert_same_bytes(runs[1], runs[0], kind)
