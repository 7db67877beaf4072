"""qk_rmsnorm returns rmsnorm's result for both tensors, in one launch."""

# ruff: noqa: E501 - in the table below a line is a case

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import CPU_FRAMEWORKS
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ALL_DTYPES, INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from placement import assert_written_exactly, place, placements

from jitnorm import gemma_qk_rmsnorm, gemma_rmsnorm, qk_rmsnorm, rmsnorm

DIM = 40  # two chunks and a half


def make(kind: str, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    return make_input(kind, math.prod(shape[:-1]), shape[-1], dtype, seed).reshape(shape)


@pytest.mark.parametrize(
    ("head_dim", "dtype"), in_turn([1, 17, 64, 128, 256, 512, 513, 4096, 100], ["float16", "bfloat16"])
)
def test_the_outputs_are_the_reference_s(head_dim: int, dtype: str) -> None:
    weights = make_weight(head_dim, dtype), make_weight(head_dim, dtype, 2)
    for kind in INPUT_KINDS:
        q, k = make(kind, (3, 5, head_dim), dtype), make(kind, (3, 2, head_dim), dtype, 1)
        for got, x, weight in zip(qk_rmsnorm(q, k, *weights), (q, k), weights, strict=True):
            assert_same_bytes(got, expected_rmsnorm(x, weight), kind)


@pytest.mark.parametrize(
    ("dtype", "ops"), in_turn(ALL_DTYPES, [(qk_rmsnorm, rmsnorm), (gemma_qk_rmsnorm, gemma_rmsnorm)])
)
def test_float32_weights_and_any_eps_are_as_in_rmsnorm(dtype: str, ops: tuple[Any, Any]) -> None:
    op, alone = ops
    q, k = make("random", (4, DIM), dtype), make("random", (7, DIM), dtype, 1)
    weights = make_weight(DIM, "float32"), make_weight(DIM, "float32", 2)
    for got, x, weight in zip(op(q, k, *weights, 0.25), (q, k), weights, strict=True):
        assert_same_bytes(got, alone(x, weight, 0.25))


@pytest.mark.parametrize("q_shape", [(), (0,), (1,), (3, 5), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("k_shape", [(), (0, 2), (1,), (3, 1), (17,)])
def test_leading_shapes_are_independent_and_either_may_be_empty(q_shape: Any, k_shape: Any) -> None:
    q, k, weight = make("random", (*q_shape, DIM), "float16"), make("random", (*k_shape, DIM), "float16", 1), ones(DIM)
    q_out, k_out = qk_rmsnorm(q, k, weight, 2 * weight)
    assert_same_bytes(q_out, expected_rmsnorm(q, weight))
    assert_same_bytes(k_out, expected_rmsnorm(k, 2 * weight))


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_strides_and_alignment_change_nothing(data: st.DataObject) -> None:
    """Each tensor has its own leading shape, gaps and offset; only the outputs' rows are written."""
    weights = make_weight(DIM, "float16"), make_weight(DIM, "float16", 2)
    inputs, outputs, places = [], [], []
    for seed in (0, 1):
        shape = (*data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)), DIM)
        placement, place_out = (data.draw(placements(len(shape) - 1, (0, 1, 4, 8))) for _ in range(2))
        inputs.append(place(shape, np.float16, placement))
        inputs[-1].view[...] = make("random", shape, "float16", seed)
        outputs.append(place(shape, np.float16, place_out))
        places.append(place_out)
    before = [x.buffer.tobytes() for x in inputs]
    q, k, q_out, k_out = (x.view for x in (*inputs, *outputs))
    returned = qk_rmsnorm(q, k, *weights, q_out=q_out, k_out=k_out)
    assert returned[0] is q_out
    assert returned[1] is k_out
    for x, out, weight, placement in zip((q, k), outputs, weights, places, strict=True):
        assert_written_exactly(out, expected_rmsnorm(x, weight), placement)
    assert [x.buffer.tobytes() for x in inputs] == before


@pytest.mark.parametrize("keys", [4, 1])
def test_views_of_a_packed_tensor_are_normalized_in_place_by_one_kernel(
    keys: int, prepared: list[KernelConfig]
) -> None:
    packed = torch.from_numpy(make("random", (5, 8 + 2 * keys, 64), "float16"))
    before, weight = packed.numpy().copy(), torch.ones(64).half()
    q, k = packed[:, :8], packed[:, 8 : 8 + keys]
    q_out, k_out = qk_rmsnorm(q, k, weight, 2 * weight, q_out=q, k_out=k)
    assert (q_out is q, k_out is k) == (True, True)
    assert [config.row_dims for config in prepared] == [2]
    assert_same_bytes(q, expected_rmsnorm(before[:, :8], weight.numpy()))
    assert_same_bytes(k, expected_rmsnorm(before[:, 8 : 8 + keys], 2 * weight.numpy()))
    assert_same_bytes(packed[:, 8 + keys :], before[:, 8 + keys :])


def test_keys_of_one_head_may_lack_the_dimension_of_heads() -> None:
    packed, weight = make("random", (5, 10, 64), "float16"), ones(64)
    before = packed.copy()
    qk_rmsnorm(packed[:, :8], packed[:, 8], weight, weight, q_out=packed[:, :8], k_out=packed[:, 8])
    assert_same_bytes(packed[:, :9], expected_rmsnorm(before[:, :9], weight))
    assert_same_bytes(packed[:, 9], before[:, 9])


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_outputs_that_share_memory_are_refused_and_views_that_interleave_are_not(data: st.DataObject) -> None:
    memory = np.zeros(2000, np.float16)
    outputs = []
    for _ in range(2):
        shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
        strides = [2 * data.draw(st.sampled_from([16, 32, 48, 96, 160])) for _ in shape]
        start = data.draw(st.integers(0, 12)) * 8
        outputs.append(np.lib.stride_tricks.as_strided(memory[start:], (*shape, 16), (*strides, 2)))
    q, k = (ones(*out.shape) for out in outputs)
    is_injective = all(len(set(addresses(out))) == out.size for out in outputs)
    try:
        qk_rmsnorm(q, k, ones(16), ones(16), q_out=outputs[0], k_out=outputs[1])
    except ValueError as error:
        assert "share memory" in str(error) or "overlaps" in str(error)  # noqa: PT017 - which calls raise is the question
        assert not memory.any()
    else:
        assert is_injective
        assert not np.shares_memory(*outputs)


def addresses(view: Any) -> list[int]:
    """The addresses of all elements."""
    offsets = sum(np.indices(view.shape)[d] * view.strides[d] for d in range(view.ndim))
    return (view.ctypes.data + offsets).ravel().tolist()


@pytest.mark.parametrize("name", CPU_FRAMEWORKS)
def test_every_framework_gets_the_same_bytes(name: str) -> None:
    q, k, weight = make("random", (3, 2, 64), "bfloat16"), make("random", (3, 64), "bfloat16", 1), ones(64, "bfloat16")
    made = qk_rmsnorm(*map(CPU_FRAMEWORKS[name], (q, k, weight, weight)))
    for got, x in zip(made, (q, k), strict=True):
        assert_same_bytes(got, expected_rmsnorm(x, weight))


def ones(*args: Any) -> Any:
    shape, dtype = [a for a in args if isinstance(a, int)], [a for a in args if isinstance(a, str)]
    return np.ones(shape, ALL_DTYPES[dtype[0]] if dtype else np.float16)


def good() -> dict[str, Any]:
    return {"q": ones(4, 3, 64), "k": ones(4, 2, 64), "q_weight": ones(64), "k_weight": ones(64)}


def shared_outputs() -> dict[str, Any]:
    memory = ones(4, 4, 64)
    return {"q_out": memory[:, :3], "k_out": memory[:, 2:]}


BAD: list[tuple[str, Callable[[Any], dict[str, Any]], str, Any]] = [
    ("q_none", lambda c: {"q": None}, "q: is .*None.*; expected a tensor", TypeError),
    ("k_none", lambda c: {"k": None}, "k: is .*None.*; expected a tensor", TypeError),
    ("k_list", lambda c: {"k": [1.0]}, "k: is .*; expected a tensor", TypeError),
    ("q_weight_none", lambda c: {"q_weight": None}, "k_weight: is given, but q_weight is None; pass both or neither", ValueError),
    ("k_weight_none", lambda c: {"k_weight": None}, "k_weight: is None; expected a tensor", TypeError),
    ("q_scalar", lambda c: {"q": np.array(1, np.float16)}, "q: has no dimensions", ValueError),
    ("k_scalar", lambda c: {"k": np.array(1, np.float16)}, "k: has no dimensions", ValueError),
    ("q_dtype", lambda c: {"q": ones(4, 64).astype(np.int32)}, "q dtype: is 'int32'", ValueError),
    ("q_weight_dtype", lambda c: {"q_weight": ones(64).astype(np.int32)}, "q_weight dtype: is 'int32'", ValueError),
    ("q_size", lambda c: {"q": ones(4, 0)}, r"q: its last dimension \(hidden size\) is 0; 1 to 262144", ValueError),
    ("k_size", lambda c: {"k": ones(4, 2, 32), "k_out": ones(4, 2, 32)}, r"k: shape is \(4, 2, 32\), expected \(4, 2, 64\)", ValueError),
    ("k_dtype", lambda c: {"k": ones(4, 2, 64, "float32")}, "k: dtype is float32, expected float16", ValueError),
    ("k_stride", lambda c: {"k": ones(4, 2, 128)[..., ::2]}, "k: the stride of its last dimension is 2, expected 1", ValueError),
    ("weights_differ", lambda c: {"k_weight": ones(64, "float32")}, "k_weight: dtype is float32, expected float16", ValueError),
    ("k_weight_size", lambda c: {"k_weight": ones(32)}, r"k_weight: shape is \(32,\), expected \(64,\)", ValueError),
    ("q_out_like_k", lambda c: {"q_out": ones(4, 2, 64)}, r"q_out: shape is \(4, 2, 64\), expected \(4, 3, 64\)", ValueError),
    ("k_out_like_q", lambda c: {"k_out": ones(4, 3, 64)}, r"k_out: shape is \(4, 3, 64\), expected \(4, 2, 64\)", ValueError),
    ("k_out_rank", lambda c: {"k_out": ones(8, 64)}, r"k_out: shape is \(8, 64\), expected \(4, 2, 64\)", ValueError),
    ("k_out_dtype", lambda c: {"k_out": ones(4, 2, 64, "float32")}, "k_out: dtype is float32, expected float16", ValueError),
    ("outputs_overlap", lambda c: shared_outputs(), "q_out: overlaps the memory of k_out", ValueError),
    ("k_out_within_q_out", lambda c: {"k": ones(4, 64), "q_out": (m := ones(4, 5, 64))[:, :3], "k_out": m[:, 2]}, "q_out: overlaps the memory of k_out", ValueError),
    ("q_out_is_k", lambda c: {"q": ones(4, 2, 64), "q_out": c["k"]}, "q_out: overlaps the memory of k", ValueError),
    ("k_out_is_weight", lambda c: {"k": ones(1, 64), "k_out": c["q_weight"].reshape(1, 64)}, "k_out: overlaps the memory of q_weight", ValueError),
    ("pdl", lambda c: {"enable_pdl": True}, "enable_pdl: is True, but cpu has no", ValueError),
    ("stream", lambda c: {"stream": 1}, "stream: is given, but q is on the cpu", ValueError),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message", "error"), [pytest.param(*case[1:], id=case[0]) for case in BAD])
def test_bad_input_is_refused_and_nothing_is_written(change: Callable[[Any], Any], message: str, error: Any) -> None:
    call = good()
    call |= change(call)
    before = {name: value.tobytes() for name, value in call.items() if isinstance(value, np.ndarray)}
    with pytest.raises(error, match=message):
        qk_rmsnorm(**call)
    assert {name: value.tobytes() for name, value in call.items() if isinstance(value, np.ndarray)} == before


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [17, 64, 128, 512, 4096])
def test_the_gpu_s_bytes_are_the_cpu_s(head_dim: int) -> None:
    weight = torch.from_numpy(make_weight(head_dim, "float16"))
    for kind in INPUT_KINDS:
        packed = torch.from_numpy(make(kind, (33, 12, head_dim), "float16"))
        for rows in (0, 1, 33):
            on_cpu, on_gpu = packed[:rows].clone(), packed[:rows].cuda()
            for x in (on_cpu, on_gpu):
                weights = weight.to(x.device), 2 * weight.to(x.device)
                qk_rmsnorm(x[:, :8], x[:, 8:10], *weights, q_out=x[:, :8], k_out=x[:, 8:10])
            assert_same_bytes(on_gpu, on_cpu, kind)
