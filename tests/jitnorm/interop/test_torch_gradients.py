"""Gradients that an op lacks are an error, and autograd knows what is written in place."""

from __future__ import annotations

from typing import Any

import op_calls
import pytest
import torch
from expected import assert_same_bytes, expected_rmsnorm
from frameworks import to_torch
from inputs import make_input, make_weight
from torch.autograd import forward_ad

import jitnorm
from jitnorm import fused_add_rmsnorm, rmsnorm

ROWS, SIZE = 5, 96
X, WEIGHT = make_input("real", ROWS, SIZE, "float32"), make_weight(SIZE, "float32")
EXPECTED = expected_rmsnorm(X, WEIGHT)


# Ops with gradients, and those that their gradients consist of, which have none.
DIFFERENTIABLE = {
    "rmsnorm", "gemma_rmsnorm", "rmsnorm_bias", "layernorm", "fused_add_rmsnorm", "gemma_fused_add_rmsnorm",
    "add_rmsnorm", "gemma_add_rmsnorm", "qk_rmsnorm", "gemma_qk_rmsnorm", "q_kv_rmsnorm",
}  # fmt: skip


def call(**changed: Any) -> Any:
    return rmsnorm(**{"input": to_torch(X), "weight": to_torch(WEIGHT), **changed})


def quantizing_call(**changed: Any) -> Any:
    return jitnorm.norm_quantize(
        **{"input": to_torch(X), "weight": to_torch(WEIGHT), "spec": jitnorm.MXFP8, **changed}
    ).data


@pytest.mark.parametrize("name", ["input", "weight", "y_out"])
def test_a_tensor_that_requires_grad_is_refused_by_name_unless_gradients_are_off(name: str) -> None:
    given = {"input": to_torch(X), "weight": to_torch(WEIGHT), "y_out": torch.zeros(ROWS, SIZE)}
    expected = quantizing_call(**given)
    given[name].requires_grad_()
    with pytest.raises(TypeError, match=rf"^{name}: requires grad, .*torch\.no_grad\(\), or pass `\.detach\(\)`"):
        quantizing_call(**given)
    if name != "y_out":
        with pytest.raises(TypeError, match=rf"^{name}: requires grad"):
            quantizing_call(**{**given, "y_out": None})
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_same_bytes(quantizing_call(**given), expected)
    assert_same_bytes(quantizing_call(**{key: tensor.detach() for key, tensor in given.items()}), expected)


def test_what_was_computed_from_a_parameter_is_refused() -> None:
    hidden = torch.nn.Linear(SIZE, SIZE)(to_torch(X))
    with pytest.raises(TypeError, match=r"^input: requires grad"):
        quantizing_call(input=hidden)
    with pytest.raises(TypeError, match=r"^residual: requires grad"):
        quantizing_call(residual=hidden)


@pytest.mark.parametrize("name", sorted({call.op for call in op_calls.calls()} - DIFFERENTIABLE))
def test_every_op_without_a_gradient_refuses_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def recorded(shape: tuple[int, ...], dtype: str = "bfloat16", is_output: bool = False) -> Any:
        kind = getattr(torch, {"float4_e2m1fnx2": "uint8"}.get(dtype, dtype))
        requires_grad = kind.is_floating_point and not is_output
        made.append(torch.zeros(shape, dtype=kind, requires_grad=requires_grad))
        return made[-1]

    monkeypatch.setattr(op_calls, "new", recorded)
    for each in (each for each in op_calls.calls() if each.op == name):
        made.clear()
        refusal = ""
        try:
            each.make(2)
        except TypeError as error:
            refusal = str(error)
        assert ("requires grad" in refusal) == any(tensor.requires_grad for tensor in made), (each.choices, refusal)


def test_a_tangent_is_refused_and_others_may_be_used_beside() -> None:
    with forward_ad.dual_level():
        with pytest.raises(TypeError, match=r"^input: has a tangent"):
            call(input=forward_ad.make_dual(to_torch(X), to_torch(X)))
        assert_same_bytes(call(), EXPECTED)


def outputs_of_calls() -> dict[str, tuple[Any, ...]]:
    """The call and the caller's output tensors, for each op that can write into them."""
    x, weight, scale = to_torch(X), to_torch(WEIGHT), torch.ones(1)

    def like(dtype: torch.dtype = torch.float32, size: int = SIZE) -> Any:
        return torch.zeros(ROWS, size).to(dtype)

    def residual() -> Any:
        return to_torch(X)

    e4m3, uint8 = torch.float8_e4m3fn, torch.uint8
    out, codes, bytes_, scales = like(), like(e4m3), like(uint8, SIZE // 2), like(e4m3, SIZE // 16)
    a, b, c, d, e, f, k = residual(), residual(), residual(), residual(), residual(), residual(), residual()
    moved, decoded = torch.zeros(512, dtype=uint8), like(torch.bfloat16)
    return {
        "rmsnorm": (lambda: rmsnorm(x, weight, out=out), out),
        "rmsnorm in place": (lambda: rmsnorm(k, weight, out=k), k),
        "layernorm": (lambda: jitnorm.layernorm(x, weight, weight, out=out), out),
        "fused_add_rmsnorm": (lambda: fused_add_rmsnorm(a, b, weight), a, b),
        "rmsnorm_fp4quant": (lambda: jitnorm.rmsnorm_fp4quant(x, weight, bytes_, scales), bytes_, scales),
        "add_rmsnorm_fp4quant": (lambda: jitnorm.add_rmsnorm_fp4quant(x, c, weight), c),
        "rmsnorm_quant": (lambda: jitnorm.rmsnorm_quant(codes, x, weight, scale), codes),
        "fused_add_rmsnorm_quant": (lambda: jitnorm.fused_add_rmsnorm_quant(codes, x, d, weight, scale), codes, d),
        "qk_rmsnorm": (lambda: jitnorm.qk_rmsnorm(e, f, weight, weight, q_out=e, k_out=f), e, f),
        "norm_quantize": (lambda: jitnorm.norm_quantize(x, weight, spec=jitnorm.MXFP8, residual=b, y_out=out), b, out),
        "dequantize": (lambda: jitnorm.dequantize(jitnorm.quantize(x, spec=jitnorm.MXFP8), out=decoded), decoded),
        "block_scale_interleave": (
            lambda: jitnorm.block_scale_interleave(torch.zeros(5, 4).to(uint8), out=moved),
            moved,
        ),
    }


@pytest.mark.parametrize("name", outputs_of_calls())
def test_tensors_that_are_written_get_another_version(name: str) -> None:
    op, *written = outputs_of_calls()[name]
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            for _ in range(3):  # from the second on, the kernel is known
                before = [tensor._version for tensor in written]
                op()
                assert all(tensor._version > version for tensor, version in zip(written, before, strict=True))


def test_autograd_notices_that_what_it_kept_was_overwritten() -> None:
    factor, kept = torch.ones(ROWS, SIZE, requires_grad=True), to_torch(X)
    product = factor * kept
    rmsnorm(kept, to_torch(WEIGHT), out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_inputs_keep_their_version() -> None:
    x, weight = to_torch(X), to_torch(WEIGHT)
    for _ in range(2):
        call(input=x, weight=weight)
    assert (x._version, weight._version) == (0, 0)


def test_inference_tensors_are_written_inside_and_outside_of_inference_mode() -> None:
    with torch.inference_mode():
        out = torch.zeros(ROWS, SIZE)
        assert_same_bytes(call(out=out), EXPECTED)
    beside = torch.zeros(ROWS, SIZE)
    for _ in range(2):
        with torch.no_grad():
            assert_same_bytes(call(out=out.zero_() if torch.is_inference_mode_enabled() else out), EXPECTED)
            version = beside._version
            jitnorm.qk_rmsnorm(to_torch(X), to_torch(X), to_torch(WEIGHT), to_torch(WEIGHT), q_out=out, k_out=beside)
            assert beside._version > version
