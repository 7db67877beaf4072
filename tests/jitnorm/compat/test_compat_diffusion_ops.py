"""jitnorm.compat.flashinfer.diffusion_ops: the norm and rotation of a video's tokens, against float64."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from jitnorm.compat import flashinfer

PATCHES = {"ppf": 2, "pph": 3, "ppw": 2}
CHANNELS = {"num_frame_channels": 24, "num_height_channels": 20, "num_width_channels": 20}
HEADS = {"num_heads_q": 2, "num_heads_k": 2, "num_heads_v": 3, "head_dim": 64}
TOKENS, SIZE = 12, 64


def exact(x: torch.Tensor, weight: torch.Tensor | None, interleave: bool) -> torch.Tensor:
    """The exact result for adjacent heads, in float64."""
    y = x.double()
    if weight is not None:
        y = y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    at = torch.cartesian_prod(*(torch.arange(count) for count in PATCHES.values())).double()
    bands = [
        at[:, i, None] * 10000.0 ** (-torch.arange(size // 2).double() / (size // 2))
        for i, size in enumerate(CHANNELS.values())
    ]
    turns = torch.cat(bands, -1)[:, None]
    pairs = y.unflatten(-1, (-1, SIZE))
    first, second = (pairs[..., 0::2], pairs[..., 1::2]) if interleave else pairs.chunk(2, -1)
    found = torch.polar(torch.ones_like(turns), turns) * torch.complex(first, second)
    turned = torch.view_as_real(found)
    return turned.flatten(-2) if interleave else torch.cat([turned[..., 0], turned[..., 1]], -1)


@pytest.mark.parametrize(("interleave", "is_qk_norm"), [(True, True), (False, False)])
def test_heads_are_normalized_together_and_turned_by_three_positions(interleave: bool, is_qk_norm: bool) -> None:
    generator = torch.Generator().manual_seed(5)
    qkv = torch.randn(2, TOKENS, 7 * SIZE, generator=generator).bfloat16()
    weights = 1 + torch.randn(2, 2 * SIZE, generator=generator) / 8
    q_weight, k_weight = (torch.nn.Parameter(weight.bfloat16()) for weight in weights)
    options: dict[str, Any] = {**PATCHES, **CHANNELS, **HEADS, "interleave": interleave, "is_qk_norm": is_qk_norm}
    q, k, v = flashinfer.fused_qk_rmsnorm_rope(qkv, q_weight, k_weight, **options)
    scales = {"output_quant_scale": 2.0, "v_quant_scale": 4.0}
    codes = flashinfer.fused_qk_rmsnorm_rope(
        qkv.flatten(0, 1), q_weight, k_weight, **options, output_fp8=True, **scales
    )
    inputs = qkv.split([2 * SIZE, 2 * SIZE, 3 * SIZE], -1)
    assert torch.equal(v, inputs[2].unflatten(-1, (3, SIZE)))
    for found, code, x, weight in zip((q, k), codes, inputs, (q_weight, k_weight), strict=False):
        expected = exact(x, weight.detach() if is_qk_norm else None, interleave)
        assert found.shape == (*x.shape[:-1], x.shape[-1] // SIZE, SIZE)
        assert torch.allclose(found.double(), expected, rtol=2**-8, atol=1e-5)
        assert torch.allclose(code.float().double(), 2 * expected.flatten(0, 1), rtol=2**-4, atol=2**-9)
    assert torch.equal(codes[2].float(), (4 * v).flatten(0, 1).to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("is_given", [False, True])
def test_a_gradient_of_a_weight_is_an_error_and_not_lost(is_given: bool) -> None:
    qkv = torch.randn(TOKENS, 7 * SIZE).bfloat16()
    q_weight, k_weight = torch.nn.Parameter(torch.ones(2 * SIZE).bfloat16()), torch.ones(2 * SIZE).bfloat16()
    outputs = {"q_out": torch.empty(TOKENS, 2, SIZE).bfloat16()[:]} if is_given else {}
    call: Any = partial(flashinfer.fused_qk_rmsnorm_rope, qkv, q_weight, k_weight, **PATCHES, **CHANNELS, **HEADS)
    q, k, v = call(**outputs)
    assert (q.requires_grad, k.requires_grad, v.requires_grad) == (True, False, False)
    for each in (q, *outputs.values()):
        with pytest.raises(RuntimeError, match=r"fused_qk_rmsnorm_rope: has no gradient; .* torch\.no_grad"):
            each.sum().backward()
    with torch.no_grad():
        assert not call()[0].requires_grad


def test_outputs_are_given_or_allocated_without_the_slow_path(slow_calls: list[str]) -> None:
    for counts, is_fp8 in product(((2, 2, 3), (4, 2, 1)), (False, True)):
        heads = dict(zip(("num_heads_q", "num_heads_k", "num_heads_v"), counts, strict=True))
        qkv, weight = torch.randn(2, TOKENS, 7 * SIZE).bfloat16(), torch.ones(4 * SIZE).bfloat16()
        call: Any = partial(
            flashinfer.fused_qk_rmsnorm_rope, qkv, weight[: counts[0] * SIZE], weight[: counts[1] * SIZE], **PATCHES,
            **CHANNELS, **heads, head_dim=64, output_fp8=is_fp8, output_quant_scale=2.0,
        )  # fmt: skip
        wanted = call()
        for given in product((False, True), repeat=3):
            outputs = {
                name: torch.empty_like(each)
                for name, each, is_given in zip(("q_out", "k_out", "v_out"), wanted, given, strict=True)
                if is_given
            }
            for is_known in (False, True, True):
                slow_calls.clear()
                made = dict(zip(("q_out", "k_out", "v_out"), call(**outputs), strict=True))
                assert all(each.is_contiguous() for each in made.values())
                assert all(torch.equal(*map(_bytes, pair)) for pair in zip(made.values(), wanted, strict=True))
                assert all(torch.equal(_bytes(made[name]), _bytes(out)) for name, out in outputs.items())
                assert not (slow_calls and is_known)


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8)


def test_queries_and_keys_may_have_other_numbers_of_heads() -> None:
    qkv = torch.randn(TOKENS, 7 * SIZE, generator=torch.Generator().manual_seed(6)).bfloat16()
    weight, heads = (
        torch.ones(4 * SIZE).bfloat16(),
        {"num_heads_q": 4, "num_heads_k": 2, "num_heads_v": 1, "head_dim": 64},
    )
    q, k, v = flashinfer.fused_qk_rmsnorm_rope(qkv, weight, weight[: 2 * SIZE], **PATCHES, **CHANNELS, **heads)
    for found, x in zip((q, k), qkv.split([4 * SIZE, 2 * SIZE, SIZE], -1), strict=False):
        expected = exact(x, torch.ones(x.shape[-1]), interleave=True)
        assert torch.allclose(found.double(), expected, rtol=2**-8, atol=1e-5)
    assert torch.equal(v.flatten(1), qkv[:, 6 * SIZE :])


@pytest.mark.parametrize("is_qk_norm", [True, False])
def test_given_outputs_at_any_stride_are_written(is_qk_norm: bool) -> None:
    qkv, weight = torch.randn(2, TOKENS, 7 * SIZE).bfloat16(), torch.ones(2 * SIZE).bfloat16()
    call: Any = partial(
        flashinfer.fused_qk_rmsnorm_rope, qkv, weight, weight, **PATCHES, **CHANNELS, **HEADS, is_qk_norm=is_qk_norm
    )
    wanted = call()
    for length in (TOKENS, TOKENS + 1):
        given = [torch.empty(2, length, *each.shape[2:]).bfloat16()[:, :TOKENS] for each in wanted]
        outputs = dict(zip(("q_out", "k_out", "v_out"), given, strict=True))
        assert all(map(torch.equal, call(**outputs), wanted))
        assert all(map(torch.equal, given, wanted))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads_v": 4}, "qkv: has 448 columns; 8 heads of 64 are 512"),
        ({"num_frame_channels": 26}, r"num_width_channels: are \(26, 20, 20\); expected even numbers whose sum"),
        ({"ppw": 5}, r"ppf, pph, ppw: are \(2, 3, 5\), 30 tokens; expected positive numbers of which qkv"),
        ({"q_out": torch.empty(12, 3, 64)}, r"q_out: is torch.float32 of shape .*; expected torch.bfloat16 of"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    weight = torch.ones(128).bfloat16()
    with pytest.raises(ValueError, match=message):
        flashinfer.fused_qk_rmsnorm_rope(
            torch.ones(12, 448).bfloat16(), weight, weight, **{**PATCHES, **CHANNELS, **HEADS, **change}
        )
