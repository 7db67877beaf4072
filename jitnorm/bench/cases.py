"""The ops to measure: ops of the catalogue, nearly all in bfloat16, by name, with the bytes that their calls move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jitnorm
from jitnorm.bench.calls import Call, call_of
from jitnorm.bench.measured import Maker, Measured, op_of
from jitnorm.bench.more_cases import MORE_OPS
from jitnorm.bench.tensors import Tensors
from jitnorm.catalogue import OPS as CATALOGUE
from jitnorm.kernels.spelling import did_you_mean

CHAIN = 20  # calls
_HEAD_SIZE = 128  # elements


def chain(enable_pdl: bool | None = None) -> Maker:
    """Calls that wait for each other, like the layers of a model."""

    def make(new: Tensors, m: int, h: int) -> Call:
        one = call_of(
            CATALOGUE["add_rmsnorm_fp4quant"], {"hidden_size": h}, new.of, m, outputs=True, enable_pdl=enable_pdl
        )

        def call() -> None:
            for _ in range(CHAIN):
                one()

        return call

    return make


def _packed(new: Tensors, m: int, h: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values, views of a packed tensor with heads of 128; a quarter as many for keys."""
    heads = h // _HEAD_SIZE
    return tuple(new.bfloat16(m, heads + 2 * (heads // 4), _HEAD_SIZE).split([heads, heads // 4, heads // 4], 1))


def _heads(new: Tensors, m: int, h: int) -> tuple[Any, Any, Any]:
    """Such queries and keys, and a weight."""
    q, k, _ = _packed(new, m, h)
    return q, k, new.bfloat16(_HEAD_SIZE)


def _qk(new: Tensors, m: int, h: int) -> Call:
    q, k, w = _heads(new, m, h)
    return lambda: jitnorm.qk_rmsnorm(q, k, w, w, q_out=q, k_out=k)


def _q_kv(new: Tensors, m: int, h: int) -> Call:
    """Latents of a packed tensor, in place; the second are a quarter as long."""
    packed, w = new.bfloat16(m, h + h // 4), new.bfloat16(h)
    q, kv = packed[:, :h], packed[:, h:]
    return lambda: jitnorm.q_kv_rmsnorm(q, kv, w, w[: h // 4], q_out=q, kv_out=kv)


def _qk_rope(new: Tensors, m: int, h: int) -> Call:
    """The same, with a different position for each token."""
    (q, k, w), table, positions = _heads(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    return lambda: jitnorm.qk_rmsnorm_rope(q, k, w, w, table, positions, q_out=q, k_out=k)


def _qk_rope_fp8(new: Tensors, m: int, h: int) -> Call:
    (q, k, w), table, positions = _heads(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    q_out, k_out, scale = new.fp8(*q.shape), new.fp8(*k.shape), new.one()
    return lambda: jitnorm.qk_rmsnorm_rope_quant(q, k, w, w, table, positions, scale, scale, q_out=q_out, k_out=k_out)


def _qk_rope_cache(new: Tensors, m: int, h: int) -> Call:
    """Pages of 16 tokens, each of which has one."""
    (q, k, v), table, positions = _packed(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    w = new.bfloat16(_HEAD_SIZE)
    keys, values = (new.empty(m // 16 + 1, 16, h // 512, _HEAD_SIZE) for _ in range(2))
    return lambda: jitnorm.qk_rmsnorm_rope_cache(q, k, v, w, w, table, positions, positions, keys, values, q_out=q)


def _qk_rope_cache_fp8(new: Tensors, m: int, h: int) -> Call:
    (q, k, v), table, positions = _packed(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    w = new.bfloat16(_HEAD_SIZE)
    keys, values = (new.fp8(m // 16 + 1, 16, h // 512, _HEAD_SIZE) for _ in range(2))
    call, one = (q, k, v, w, w, table, positions, positions, keys, values), new.one()
    return lambda: jitnorm.qk_rmsnorm_rope_cache_quant(*call, one, one, q_out=q)


def _rope(new: Tensors, m: int, h: int) -> Call:
    """In place in a packed tensor."""
    (q, k, _), table, positions = _packed(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    return lambda: jitnorm.rope(q, k, table, positions, q_out=q, k_out=k)


def _rope_fp8(new: Tensors, m: int, h: int) -> Call:
    (q, k, _), table, positions = _packed(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    q_out, k_out, scale = new.fp8(*q.shape), new.fp8(*k.shape), new.one()
    return lambda: jitnorm.rope_quant(q, k, table, positions, scale, scale, q_out=q_out, k_out=k_out)


def _rope_cache(new: Tensors, m: int, h: int) -> Call:
    (q, k, v), table, positions = _packed(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    keys, values = (new.empty(m // 16 + 1, 16, h // 512, _HEAD_SIZE) for _ in range(2))
    return lambda: jitnorm.rope_cache(q, k, v, table, positions, positions, keys, values, q_out=q)


def _rope_cache_fp8(new: Tensors, m: int, h: int) -> Call:
    (q, k, v), table, positions = _packed(new, m, h), new.bfloat16(m, _HEAD_SIZE), new.positions(m)
    keys, values = (new.fp8(m // 16 + 1, 16, h // 512, _HEAD_SIZE) for _ in range(2))
    call, one = (q, k, v, table, positions, positions, keys, values), new.one()
    return lambda: jitnorm.rope_cache_quant(*call, one, one, q_out=q)


_RMSNORM = op_of("rmsnorm", "rmsnorm")


def _of_heads(name: str, op: str, bytes_per_element: float, make: Maker, places: int = 1) -> Measured:
    """Rotated heads: a token's angles are those of all of them, and each of its places is an int64."""
    return Measured(name, op, {}, bytes_per_element, make, (1, 512), bytes_per_row=2 * _HEAD_SIZE + 8 * places)


_ADD_NVFP4 = op_of("add nvfp4", "add_rmsnorm_fp4quant")
OPS = (
    _RMSNORM,
    op_of("gemma", "gemma_rmsnorm"),
    op_of("add_rmsnorm", "fused_add_rmsnorm"),
    op_of("add gemma", "gemma_fused_add_rmsnorm"),
    # A quarter of the heads are keys.
    Measured("qk_rmsnorm", "qk_rmsnorm", {}, 1.25 * _RMSNORM.bytes_per_element, _qk, (1, 512)),
    _of_heads("qk_rmsnorm_rope", "qk_rmsnorm_rope", 1.25 * 4, _qk_rope),
    _of_heads("qk_rmsnorm_rope fp8", "qk_rmsnorm_rope_quant", 1.25 * 3, _qk_rope_fp8),
    # Another quarter are values.
    _of_heads("qk_rmsnorm_rope cache", "qk_rmsnorm_rope_cache", 1.5 * 4, _qk_rope_cache, 2),
    _of_heads("qk_rmsnorm_rope cache fp8", "qk_rmsnorm_rope_cache_quant", 4 + 0.5 * 3, _qk_rope_cache_fp8, 2),
    _of_heads("rope", "rope", 1.25 * 4, _rope),
    _of_heads("rope fp8", "rope_quant", 1.25 * 3, _rope_fp8),
    _of_heads("rope cache", "rope_cache", 1.5 * 4, _rope_cache, 2),
    _of_heads("rope cache fp8", "rope_cache_quant", 4 + 0.5 * 3, _rope_cache_fp8, 2),
    op_of("rmsnorm fp8", "rmsnorm_quant"),
    op_of("add fp8", "fused_add_rmsnorm_quant"),
    op_of("fp8 token", "norm_quantize", quant="fp8_token"),
    op_of("add fp8 token", "norm_quantize", quant="fp8_token", residual=True),
    op_of("rmsnorm fp8 128", "norm_quantize", quant="fp8_group"),
    op_of("add fp8 128", "norm_quantize", quant="fp8_group", residual=True),
    op_of("rmsnorm nvfp4", "rmsnorm_fp4quant"),
    op_of("rmsnorm mxfp4", "rmsnorm_fp4quant", quant="mxfp4"),
    op_of("rmsnorm mxfp8", "rmsnorm_mxfp8quant"),
    _ADD_NVFP4,
    op_of("add mxfp4", "add_rmsnorm_fp4quant", quant="mxfp4"),
    op_of("add mxfp8", "add_rmsnorm_mxfp8quant"),
    op_of("nvfp4 alone", "quantize", quant="nvfp4"),
    op_of("mxfp4 alone", "quantize", quant="mxfp4"),
    op_of("mxfp8 alone", "quantize", quant="mxfp8"),
    replace(
        _ADD_NVFP4, name="chain of 20", bytes_per_element=CHAIN * _ADD_NVFP4.bytes_per_element, make=chain(),
        most_rows=64,
    ),
    op_of("layernorm", "layernorm", only_large=True),
    op_of("layernorm alone", "layernorm", weight="none", only_large=True),
    op_of("layernorm bf16", "layernorm", weight="bfloat16", only_large=True),
    op_of("gated add", "gated_add_layernorm", gate_bias=True, only_large=True),
    op_of("adaptive", "adaptive_layernorm", residual=True, gate_bias=True, modulation_bias=True, only_large=True),
    op_of("adaptive mxfp8", "adaptive_layernorm_quantize", quant="mxfp8", residual=True, only_large=True),
    op_of("rmsnorm silu", "rmsnorm_silu", only_large=True),
    op_of("rmsnorm multi", "rmsnorm_multi", only_large=True),
    op_of("sandwich", "sandwich_rmsnorm", only_large=True),
    op_of("sandwich nvfp4", "sandwich_norm_quantize", quant="nvfp4", only_large=True),
    op_of("gated", "rmsnorm_gated", only_large=True),
    op_of("gated input", "rmsnorm_gated", gate="input", only_large=True),
    op_of("gated fp8", "rmsnorm_gated_quantize", quant="fp8", only_large=True),
    op_of("gated fp8 token", "rmsnorm_gated_quantize", quant="fp8_token", only_large=True),
    op_of("gated nvfp4", "rmsnorm_gated_quantize", quant="nvfp4", only_large=True),
    op_of("rmsnorm silu nvfp4", "norm_quantize", quant="nvfp4", activation="silu", only_large=True),
    op_of("layernorm with statistics", "layernorm_with_statistics", only_large=True),
    op_of("layernorm fp8", "layernorm_quantize", quant="fp8", rounding="output", only_large=True),
    op_of("layernorm fp8 token", "layernorm_quantize", quant="fp8_token", only_large=True),
    op_of("layernorm mxfp8", "layernorm_quantize", quant="mxfp8", only_large=True),
    replace(
        Measured("q_kv_rmsnorm", "q_kv_rmsnorm", {}, 1.25 * _RMSNORM.bytes_per_element, _q_kv, (1, 64)),
        lengths=lambda h: {"hidden_size": h, "second_size": h // 4}, only_large=True,
    ),
    op_of("rmsnorm batched", "rmsnorm_batched", only_large=True),
    op_of("rmsnorm alone", "rmsnorm", weight="none", only_large=True),
    op_of("rmsnorm backward", "rmsnorm_backward", only_large=True),
    op_of("add backward", "rmsnorm_backward", residual=True, only_large=True),
    op_of("layernorm backward", "layernorm_backward", only_large=True),
    op_of("rmsnorm frozen backward", "rmsnorm_backward", frozen=True, only_large=True),
    op_of("layernorm frozen backward", "layernorm_backward", frozen=True, only_large=True),
    op_of("nvfp4 by row", "norm_quantize", quant="nvfp4", global_scale="row", only_large=True),
    op_of("nvfp4 by tensor", "quantize", quant="nvfp4", global_scale="tensor", only_large=True),
    op_of("fp8 128 alone", "quantize", quant="fp8_group", only_large=True),
    op_of("fp8 16 alone", "quantize", quant="e4m3/16/f32", only_large=True),
    op_of("fp8 96 alone", "quantize", quant="e4m3/96/f32"),
    op_of("fp8 by columns", "quantize", quant="e4m3/column/f32/linear/given", only_large=True),
    op_of("fp8 128 by given", "quantize", quant="e4m3/128/f32/linear/given", only_large=True),
    op_of("int8 token", "norm_quantize", quant="int8_token", only_large=True),
    op_of("add int8 token", "norm_quantize", quant="int8_token", residual=True, only_large=True),
    op_of("int8 128 alone", "quantize", quant="int8_group", only_large=True),
    op_of("four over six", "quantize", quant="nvfp4", four_over_six=True, only_large=True),
    op_of("nvfp4 batched", "nvfp4_batched_quantize", only_large=True),
    op_of("mxfp8 grouped", "mxfp8_grouped_quantize", only_large=True),
    op_of("nvfp4 grouped", "scaled_fp4_grouped_quantize", only_large=True),
    op_of("silu nvfp4 grouped", "silu_and_mul_scaled_nvfp4_experts_quantize", only_large=True),
    op_of("nvfp4 experts", "grouped_quantize", quant="nvfp4", layout="128x4", only_large=True),
    op_of("silu mxfp4 experts", "silu_and_mul_grouped_quantize", quant="mxfp4", layout="128x4", only_large=True),
    op_of("silu nvfp4", "silu_and_mul_quantize", quant="nvfp4", only_large=True),
    op_of("silu nvfp4 by 8", "silu_and_mul_quantize", quant="nvfp4", gate_columns=8, only_large=True),
    op_of("silu mxfp8", "silu_and_mul_quantize", quant="mxfp8", only_large=True),
    op_of("silu fp8 128", "silu_and_mul_quantize", quant="fp8_group", only_large=True),
    op_of("silu fp8", "silu_and_mul_quantize", quant="fp8", only_large=True),
    op_of("silu fp8 token", "silu_and_mul_quantize", quant="fp8_token", only_large=True),
    op_of("silu", "silu_and_mul", only_large=True),
    op_of("gelu", "gelu_and_mul", only_large=True),
    op_of("gelu tanh", "gelu_tanh_and_mul", only_large=True),
    op_of("swigluoai", "swigluoai_and_mul", only_large=True),
    op_of("silu clamped", "silu_and_mul_with_clamp", only_large=True),
    op_of("silu last", "mul_and_silu", only_large=True),
    op_of("fatrelu", "fatrelu_and_mul", only_large=True),
    op_of("gelu quick alone", "gelu_quick", only_large=True),
    op_of("gelu alone", "gelu", only_large=True),
    op_of("gelu tanh alone", "gelu_tanh", only_large=True),
    op_of("relu2 alone", "relu2", only_large=True),
    op_of("gelu nvfp4", "silu_and_mul_quantize", quant="nvfp4", activation="gelu", only_large=True),
    op_of("gelu tanh nvfp4", "silu_and_mul_quantize", quant="nvfp4", activation="gelu_tanh", only_large=True),
    op_of(
        "swigluoai mxfp8", "silu_and_mul_quantize", quant="mxfp8", activation="swigluoai", gate_columns=1,
        only_large=True,
    ),
    op_of(
        "silu clamped fp8 128", "silu_and_mul_quantize", quant="fp8_group", activation="swiglu:7:1:0", only_large=True,
    ),
    op_of("relu2 nvfp4", "quantize", quant="nvfp4", activation="relu2", only_large=True),
    op_of("gelu alone nvfp4", "quantize", quant="nvfp4", activation="gelu", only_large=True),
    op_of("mhc 4", "mhc_rmsnorm_quantize", streams=4, weight="float32", only_large=True),
    op_of("mhc 2", "mhc_rmsnorm_quantize", streams=2, weight="float32", only_large=True),
    op_of("mhc post", "mhc_post", only_large=True),
    op_of("mhc pre", "mhc_pre", only_large=True),
    op_of("mhc pre with prenorm", "mhc_pre_with_prenorm", only_large=True),
    op_of("decode nvfp4", "dequantize", quant="nvfp4", only_large=True),
    op_of("decode mxfp8", "dequantize", quant="mxfp8", only_large=True),
    op_of("weight nvfp4", "quantize_weight", only_large=True),
    op_of("decode mxfp8 f32", "dequantize", quant="mxfp8", input="float32", only_large=True),
    op_of("rmsnorm nvfp4 128x4", "rmsnorm_fp4quant", layout="128x4"),
    op_of("nvfp4 alone 128x4", "quantize", quant="nvfp4", layout="128x4"),
    op_of("mxfp8 alone 128x4", "quantize", quant="mxfp8", layout="128x4"),
    op_of("weight fp8", "quantize", quant="fp8_block", only_large=True),
    op_of("amax", "compute_amax", only_large=True),
)  # fmt: skip


def op_named(name: str) -> Measured:
    """Look up an op by name.

    Raises:
        ValueError: no op has it.

    Example:
        >>> op_named("rmsnorm fp8").bytes_per_element, op_named("rmsnorm f32").bytes_per_element
        (3.0, 8.0)
    """
    for op in (*OPS, *MORE_OPS):
        if op.name == name:
            return op
    names = [op.name for op in (*OPS, *MORE_OPS)]
    raise ValueError(f"name: is {name!r}; allowed are {', '.join(names)}{did_you_mean(name, names)}")


def ops_named(parts: Sequence[str]) -> list[Measured]:
    """Look up the op of each name, or else those of `OPS` whose names contain it; all of `OPS` if no names are given.

    Raises:
        ValueError: no name contains one of them.

    Example:
        >>> [op.name for op in ops_named(["decode"])]
        ['decode nvfp4', 'decode mxfp8', 'decode mxfp8 f32']
    """
    known = [*OPS, *MORE_OPS]
    names = [op.name for op in known]
    chosen: set[str] = set()
    for part in parts:
        found = {part} & set(names) or {op.name for op in OPS if part in op.name}
        if not found:
            meant = did_you_mean(part, names)
            raise ValueError(f"ops: {part!r} matches no op; the names are {', '.join(names)}{meant}")
        chosen |= found
    return [op for op in known if op.name in chosen] if parts else list(OPS)
