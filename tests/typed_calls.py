"""Calls whose types mypy checks, by scripts/lint: ops without codes return the type of tensor that they are given."""

from typing import Any

from typing_extensions import assert_type

import jitnorm


class Tensor:
    """Any framework's."""


def norms(x: Tensor, weight: Tensor, out: Tensor) -> None:
    assert_type(jitnorm.rmsnorm(x, weight), Tensor)
    assert_type(jitnorm.rmsnorm(x, weight, out=out), Tensor)
    assert_type(jitnorm.gemma_rmsnorm(x, weight), Tensor)
    assert_type(jitnorm.rmsnorm_bias(x, weight, weight), Tensor)
    assert_type(jitnorm.layernorm(x, weight, weight), Tensor)
    assert_type(jitnorm.add_rmsnorm(x, x, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.gemma_add_rmsnorm(x, x, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.qk_rmsnorm(x, x, weight, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.rmsnorm_gated(x, x, weight, out=out), Tensor)
    assert_type(jitnorm.gated_add_layernorm(x, x, x, weight, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.adaptive_layernorm(x, x, x), tuple[Tensor, Tensor | None])
    assert_type(jitnorm.rmsnorm_multi(x, weight), Tensor)
    assert_type(jitnorm.add_rmsnorm_multi(x, x, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.sandwich_rmsnorm(x, x, weight, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.rmsnorm_silu(x, weight, out=out), Tensor)
    assert_type(jitnorm.q_kv_rmsnorm(x, x, weight, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.gemma_qk_rmsnorm(x, x, weight, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.qk_rmsnorm_rope(x, x, weight, weight, weight, weight), tuple[Tensor, Tensor])
    assert_type(jitnorm.rope(x, x, weight, weight), tuple[Tensor, Tensor])
    inserted = jitnorm.qk_rmsnorm_rope_cache(x, x, x, weight, weight, weight, weight, weight, x, x)
    assert_type(inserted, tuple[Tensor, Tensor | None, Tensor | None])


def activations(x: Tensor, out: Tensor) -> None:
    assert_type(jitnorm.silu_and_mul(x), Tensor)
    assert_type(jitnorm.swigluoai_and_mul(x, out), Tensor)
    assert_type(jitnorm.gelu(x, out), Tensor)


def layouts(x: Tensor) -> None:
    assert_type(jitnorm.block_scale_interleave(x), Tensor)
    assert_type(jitnorm.shuffle_matrix_a(x, 128), Tensor)
    assert_type(jitnorm.shuffle_matrix_sf_a(x, 128), Tensor)


def quantized(x: Tensor) -> None:
    """Codes and scales have other dtypes, which some frameworks' types tell apart."""
    q = jitnorm.quantize(x, spec=jitnorm.NVFP4)
    assert_type(q, jitnorm.QuantizedTensor)
    assert_type(q.to("cpu"), jitnorm.QuantizedTensor)
    assert_type(q.data, Any)
