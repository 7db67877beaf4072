"""jitnorm.compat.flashinfer.concat_mla_kv_quant_fp8, compared with torch's conversion."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from turned_heads import codes

from jitnorm.compat import flashinfer

TOKENS, HEADS, OWN, TURNED, VALUE = 5, 3, 128, 64, 96
E4M3 = torch.float8_e4m3fn


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16() * 200  # some saturate


KV, LATENT = normal(TOKENS, HEADS, OWN + VALUE), normal(TOKENS, 512 + TURNED, seed=1)
K_PE = LATENT[:, 512:]


def expected(kv: torch.Tensor = KV, k_pe: torch.Tensor = K_PE, own: int = OWN) -> tuple[torch.Tensor, torch.Tensor]:
    keys = torch.cat([kv[..., :own], k_pe[:, None].expand(-1, HEADS, -1)], -1)
    return codes(keys, 1), codes(kv[..., own:], 1)


@pytest.mark.parametrize("k_pe", [K_PE, K_PE[:, None]])
def test_heads_share_their_rotated_elements(k_pe: torch.Tensor) -> None:
    found = flashinfer.concat_mla_kv_quant_fp8(KV, k_pe)
    for one, other in zip(found, expected(), strict=True):
        assert torch.equal(one.view(torch.uint8), other)
    outputs = torch.empty(TOKENS, HEADS, OWN + TURNED).to(E4M3), torch.empty(TOKENS, HEADS, VALUE).to(E4M3)
    made = flashinfer.concat_mla_kv_quant_fp8(KV, k_pe, *outputs, backend="cake")
    assert all(one is other for one, other in zip(made, outputs, strict=True))
    assert torch.equal(outputs[0].view(torch.uint8), found[0].view(torch.uint8))
    assert torch.equal(outputs[1].view(torch.uint8), found[1].view(torch.uint8))


def test_the_split_may_be_elsewhere_and_there_may_be_no_tokens() -> None:
    found = flashinfer.concat_mla_kv_quant_fp8(KV, K_PE, nope_dim=32)
    for one, other in zip(found, expected(own=32), strict=True):
        assert torch.equal(one.view(torch.uint8), other)
    none = flashinfer.concat_mla_kv_quant_fp8(KV[:0], K_PE[:0])
    assert [tuple(each.shape) for each in none] == [(0, HEADS, OWN + TURNED), (0, HEADS, VALUE)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "triton"}, "backend: is 'triton'"),
        ({"nope_dim": 224}, "kv_nope: shape is"),
        ({"k_pe": K_PE[1:]}, "k_pe: shape is"),
        ({"value": KV}, "value: is torch.bfloat16"),
    ],
)
def test_other_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flashinfer.concat_mla_kv_quant_fp8(**{"kv_nope": KV, "k_pe": K_PE, **options})


@pytest.mark.gpu
def test_the_gpu_s_bytes_are_the_cpu_s() -> None:
    found = flashinfer.concat_mla_kv_quant_fp8(KV.cuda(), LATENT.cuda()[:, 512:])
    for gpu, cpu in zip(found, expected(), strict=True):
        assert torch.equal(gpu.cpu().view(torch.uint8), cpu)
