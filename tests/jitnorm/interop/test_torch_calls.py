"""The usual path of torch's calls: the calls that take it, its side effects, and its time compared with a handle's."""

from __future__ import annotations

import ctypes
import re
import sys
import time
import weakref
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from jitnorm.kernels.launcher_source import launcher_source
from torch.overrides import TorchFunctionMode

import jitnorm
from jitnorm.bench.calls import call_of
from jitnorm.bench.tensors import Tensors
from jitnorm.catalogue import OPS
from jitnorm.compat import vllm

ROW_SCALES = jitnorm.QuantSpec("e4m3", "row", "f32")
X, WEIGHT = torch.ones(1, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
OUT = torch.empty_like(X)


# Of several outputs, in place, with tensors that others have shapes of, in tables that are written in part.
@pytest.mark.parametrize("outputs", [True, False])
@pytest.mark.parametrize(
    "op",
    [
        "rmsnorm",
        "fused_add_rmsnorm",
        "add_rmsnorm",
        "qk_rmsnorm",
        "qk_rmsnorm_rope_cache",
        "layernorm_backward",
        "compute_amax",
    ],
)
def test_calls_after_the_first_take_it(op: str, outputs: bool, slow_calls: list[str]) -> None:
    call = call_of(OPS[op], {"hidden_size": 64}, Tensors("cpu").of, 1, outputs=outputs)
    call()
    slow_calls.clear()
    call()
    call()
    assert not slow_calls


BATCH, MASK = torch.randn(2, 128, 256, dtype=torch.bfloat16), torch.full((2,), 128, dtype=torch.int32)
STREAMS, FACTORS = BATCH.view(64, 4, 256), torch.rand(64, 4, 4)
WEIGHTS, ONE, OFFSETS = torch.ones(3, 256), torch.ones(1), torch.tensor([0, 128], dtype=torch.int32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: jitnorm.scaled_fp4_grouped_quantize(BATCH, MASK, ONE),
        lambda: jitnorm.silu_and_mul_scaled_nvfp4_experts_quantize(BATCH, MASK, ONE),
        lambda: jitnorm.mxfp8_grouped_quantize(BATCH, MASK),
        lambda: (jitnorm.rmsnorm_multi(BATCH, WEIGHTS),),
        lambda: (jitnorm.mhc_post(STREAMS[:, 0], STREAMS, torch.ones(64, 4), FACTORS),),
        lambda: jitnorm.add_rmsnorm_multi(BATCH, BATCH, WEIGHTS, residual_out=torch.empty_like(BATCH)),
        lambda: vllm.scaled_fp8_quant(BATCH[0], use_per_token_if_dynamic=True),
        lambda: vllm.scaled_fp4_quant(BATCH[0], ONE),
        lambda: vllm.scaled_fp4_experts_quant(BATCH[0], ONE, OFFSETS, OFFSETS, 1),
        lambda: vllm.mxfp4_experts_quant(BATCH[0], OFFSETS, OFFSETS, 1, 1),
        # The first rows of columns.
        lambda: vllm.per_token_group_quant_fp8_packed_for_deepgemm(BATCH[0, :6], 16),
        lambda: vllm.rms_norm_per_block_quant(
            BATCH[0, :6], WEIGHTS[0], 1e-6, torch.int8, [1, 32], is_scale_transposed=True, tma_alignment=4
        ),
        lambda: vllm.silu_and_mul_per_block_quant(BATCH[0, :6], 32, torch.int8, is_scale_transposed=True),
    ],
)
def test_outputs_that_are_views_are_allocated_as_such(
    call: Callable[[], tuple[torch.Tensor, ...]], slow_calls: list[str]
) -> None:
    first = call()
    call()
    slow_calls.clear()
    for one, other in zip(first, call(), strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert other._base is None
        assert one.untyped_storage().nbytes() == other.untyped_storage().nbytes()
        rows = [each[:128].contiguous().view(torch.uint8) for each in (one, other)]  # without the scales of no expert
        assert torch.equal(*rows)
    assert not slow_calls


def test_streams_that_are_not_contiguous_are_copied() -> None:
    ones = torch.ones(64, 4)
    wanted = jitnorm.mhc_post(STREAMS[:, 0], STREAMS, ones, FACTORS)
    apart = torch.empty(64, 4, 512, dtype=STREAMS.dtype)[..., :256].copy_(STREAMS)
    for _ in range(2):
        assert torch.equal(jitnorm.mhc_post(STREAMS[:, 0], apart, ones, FACTORS), wanted)
        with pytest.raises(ValueError, match="x: shape is"):
            jitnorm.mhc_post(STREAMS, STREAMS, ones, FACTORS)


def test_versions_of_outputs_that_are_given_count_writes() -> None:
    out, fresh = torch.empty_like(X), [jitnorm.rmsnorm(X, WEIGHT) for _ in range(2)][1]
    before = out._version
    for _ in range(3):
        jitnorm.rmsnorm(X, WEIGHT, out=out)
    assert out._version == before + 3
    assert fresh._version == 0
    q = jitnorm.quantize(X, spec=ROW_SCALES)
    before = q.data._version
    mixed = jitnorm.quantize(X, spec=ROW_SCALES, out=q.data)
    assert mixed.data is q.data
    assert q.data._version > before


def test_a_call_that_it_refuses_leaves_outputs_to_the_slow_path(slow_calls: list[str]) -> None:
    jitnorm.rmsnorm(X, WEIGHT)
    for _ in range(2):
        slow_calls.clear()
        with pytest.raises(ValueError, match="weight: shape is"):
            jitnorm.rmsnorm(X, WEIGHT[:32])
        assert slow_calls == ["rmsnorm"]
    assert not jitnorm.rmsnorm(X, torch.nn.Parameter(WEIGHT.clone(), requires_grad=False)).requires_grad


@pytest.mark.parametrize("eps", [1, np.float32(1), True, torch.tensor(1.0)])
def test_numbers_of_any_kind_mean_the_same_or_are_refused(eps: Any) -> None:
    wanted = jitnorm.rmsnorm(X, WEIGHT, 1.0)
    for _ in range(2):
        if isinstance(eps, torch.Tensor):
            with pytest.raises(TypeError, match="eps: is a tensor"):
                jitnorm.rmsnorm(X, WEIGHT, eps)
        else:
            assert torch.equal(jitnorm.rmsnorm(X, WEIGHT, eps), wanted)


def test_a_missing_input_is_refused_before_outputs_count_a_write() -> None:
    residual = X.clone()
    for _ in range(2):
        jitnorm.add_rmsnorm(X, residual, WEIGHT, out=OUT)
    before = OUT._version
    with pytest.raises(TypeError, match="residual: is None"):
        jitnorm.add_rmsnorm(X, None, WEIGHT, out=OUT)
    assert OUT._version == before


class _Raising(TorchFunctionMode):
    """Raises an error whenever torch is asked anything."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def __torch_function__(self, *call: Any, **options: Any) -> Any:
        raise self._error


def test_an_interrupt_ends_a_call() -> None:
    for _ in range(2):
        jitnorm.rmsnorm(X, WEIGHT, out=OUT)
    with _Raising(KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        jitnorm.rmsnorm(X, WEIGHT, out=OUT)
    jitnorm.rmsnorm(X, WEIGHT, out=OUT)


def test_references_are_neither_lost_nor_kept() -> None:
    fresh, eps = [torch.empty_like(X) for _ in range(3)], 0.25
    objects = (*fresh, WEIGHT, eps, None, torch.Tensor)
    for _ in range(3):  # what first calls keep is not counted
        jitnorm.rmsnorm(fresh[0], WEIGHT, eps, fresh[1])
        jitnorm.quantize(fresh[2], spec=ROW_SCALES)
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(100):
        jitnorm.rmsnorm(fresh[0], WEIGHT, eps, fresh[1])
        jitnorm.quantize(fresh[2], spec=ROW_SCALES)
        made = jitnorm.rmsnorm(fresh[0], WEIGHT, eps)
    known = weakref.ref(made)
    del made
    assert known() is None
    assert all(abs(sys.getrefcount(each) - count) < 50 for each, count in zip(objects, before, strict=True))


def test_all_versions_of_python_have_the_functions_that_the_launcher_calls() -> None:
    declared = re.findall(r"JITNORM_PYTHON [^;]*?(Py\w+)\(", launcher_source())
    only_later = {"PyObject_Vectorcall"} if sys.version_info < (3, 11) else set()
    missing = {name for name in declared if not hasattr(ctypes.pythonapi, name)}
    assert len(declared) > 20
    assert missing == only_later


def test_quantized_tensors_of_calls_are_as_those_of_the_constructor() -> None:
    made = jitnorm.quantize(X, spec=ROW_SCALES)
    fields = {name: getattr(made, name) for name in jitnorm.QuantizedTensor.__dataclass_fields__}
    assert vars(made) == fields
    assert made == jitnorm.QuantizedTensor(**fields)
    with pytest.raises(AttributeError):
        made.axis = 0  # type: ignore[misc]


def _batch(call: Callable[[], Any]) -> float:
    """The time that the processor spends: other tests keep the machine busy."""
    start = time.thread_time()
    for _ in range(100):
        call()
    return time.thread_time() - start


# Measured on the CPU target: 2.7, 4.3, 5.6, 7.2 and 9; the slow path takes 20 and more.
@pytest.mark.parametrize(
    ("most", "call"),
    [
        (6, lambda: jitnorm.rmsnorm(X, WEIGHT, out=OUT)),
        (9, lambda: jitnorm.rmsnorm(X, WEIGHT)),
        (13, lambda: jitnorm.quantize(X, spec=ROW_SCALES)),
        (18, lambda: vllm.scaled_fp8_quant(X, use_per_token_if_dynamic=True)),
    ],
)
def test_calls_take_a_few_times_as_long_as_a_handle(most: float, call: Callable[[], Any]) -> None:
    kernel = jitnorm.get_kernel("rmsnorm:hidden_size=64,input=bfloat16")
    handle = lambda: kernel(X, WEIGHT, OUT, 1e-6)  # noqa: E731
    for _ in range(3):
        call(), handle()
    # Batches take turns and are short, so that of several medians one is undisturbed.
    ratios = [median(_batch(call) / _batch(handle) for _ in range(9)) for _ in range(5)]
    assert min(ratios) < most


def test_a_tensor_in_the_place_of_an_option_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"(?s)^enable_pdl: is tensor\(.*; allowed are None, True, False"):
        jitnorm.fused_add_rmsnorm(X.clone(), X.clone(), WEIGHT, 1e-6, OUT)
