"""The ops to measure: ops of the catalogue, nearly all in bfloat16, by name, with the bytes that their calls move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jitnorm
from jitnorm.bench.calls import Call, call_of, config_of
from jitnorm.bench.shapes import Shape, Shapes
from jitnorm.bench.tensors import Tensors
from jitnorm.catalogue import OPS as CATALOGUE
from jitnorm.catalogue.launches import chosen_of, launches
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.extents import sizes_of
from jitnorm.kernels.interface import tensor_arguments
from jitnorm.kernels.spelling import did_you_mean

Maker = Callable[[Tensors, int, int], Call]
"""From M and H to a call on tensors of its own."""

CHAIN = 20  # calls
MATRICES = 8  # of a batch
_HEAD_SIZE = 128  # elements
_ANY_SIZE = 3072


@dataclass(frozen=True)
class Measured:
    """An op over input of shape (M, H).

    Attributes:
        name: the name of the op and its format.
        op: its name in the catalogue.
        choices: what its caller chooses, besides the hidden size.
        bytes_per_element: bytes that it reads and writes per element of (M, H).
        bytes_per_row: bytes that it reads besides, per row.
        make: the call of jitnorm.
        multiples: what M and H must be multiples of.
        only_large: whether it is measured on large tensors only.
        most_rows: the maximum number of rows to measure; None for no limit.
        lengths: the lengths of its rows, by their names in a configuration, from H.
    """

    name: str
    op: str
    choices: Mapping[str, Any]
    bytes_per_element: float
    make: Maker
    multiples: Shape = (1, 1)
    only_large: bool = False
    most_rows: int | None = None
    bytes_per_row: int = 0
    lengths: Callable[[int], Mapping[str, int]] = lambda h: {"hidden_size": h}

    def bytes_at(self, m: int, h: int) -> int:
        """Bytes that a call of shape (m, h) reads and writes."""
        return int(self.bytes_per_element * m * h) + self.bytes_per_row * m

    def config(self, hidden_size: int) -> KernelConfig:
        """The call-independent part of its kernel's configuration; ValueError if it has none."""
        return config_of(*chosen_of(CATALOGUE[self.op], {**self.choices, **self.lengths(hidden_size)}))

    def shapes(self, shapes: Shapes) -> list[Shape]:
        """The shapes at which to measure the op, without those it does not support."""
        rows, hidden_size = self.multiples
        chosen = shapes.large if self.only_large else shapes.usual
        taken = [(m, h) for m, h in chosen if m % rows == 0 and h % hidden_size == 0]
        return [(m, h) for m, h in taken if self.most_rows is None or m <= self.most_rows]


def _of(name: str, op_name: str, *, only_large: bool = False, **choices: Any) -> Measured:
    """An op with some choices; outputs are given where the function takes them."""
    op = CATALOGUE[op_name]

    def make(new: Tensors, m: int, h: int) -> Call:
        rows = m // matrices
        call = call_of(op, {**choices, "hidden_size": h}, new.of, rows, matrices=MATRICES, outputs=True)
        make_sums_positive(call.keywords)
        return call

    config = config_of(*chosen_of(op, {**choices, "hidden_size": _ANY_SIZE}))
    matrices = MATRICES if config.batched else 1
    multiples = (config.block_size, 1) if config.axis == 0 else (matrices, config.block_size)
    return Measured(name, op_name, choices, _bytes_per_element(op_name, choices), make, multiples, only_large)


def make_sums_positive(named: Mapping[str, Any]) -> None:
    """Square the sums of squares among tensors: NaN, the root of a negative one, takes the slow path of divisions."""
    if "sqrsum" in named:
        named["sqrsum"].square_()


def _bytes_per_element(op_name: str, choices: dict[str, Any]) -> float:
    """Bytes that grow with rows times columns, without scales of rows and weights."""

    def bytes_of(rows: int, hidden_size: int) -> int:
        calls = launches(op_name, {**choices, "hidden_size": hidden_size})
        # Sums of rows, and the amax of parts, do not grow with the call's rows.
        calls = [each for each in calls if each.options["op"] != "sum_rows" and each.options.get("amax_parts") != 1]
        configs = [KernelConfig(**{"hidden_size": hidden_size, "input": each.input, **each.options}) for each in calls]
        tensors = [argument for config in configs for argument in tensor_arguments(config)]
        return sum(each.element_bytes * prod(sizes_of(each.shape, (rows,), rows)) for each in tensors)

    m, h = _ANY_SIZE, _ANY_SIZE
    return (bytes_of(2 * m, 2 * h) - bytes_of(2 * m, h) - bytes_of(m, 2 * h) + bytes_of(m, h)) / (m * h)


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


_RMSNORM = _of("rmsnorm", "rmsnorm")


def _of_heads(name: str, op: str, bytes_per_element: float, make: Maker, places: int = 1) -> Measured:
    """Rotated heads: a token's angles are those of all of them, and each of its places is an int64."""
    return Measured(name, op, {}, bytes_per_element, make, (1, 512), bytes_per_row=2 * _HEAD_SIZE + 8 * places)


_ADD_NVFP4 = _of("add nvfp4", "add_rmsnorm_fp4quant")
OPS = (
    _RMSNORM,
    _of("gemma", "gemma_rmsnorm"),
    _of("add_rmsnorm", "fused_add_rmsnorm"),
    _of("add gemma", "gemma_fused_add_rmsnorm"),
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
    _of("rmsnorm fp8", "rmsnorm_quant"),
    _of("add fp8", "fused_add_rmsnorm_quant"),
    _of("fp8 token", "norm_quantize", quant="fp8_token"),
    _of("add fp8 token", "norm_quantize", quant="fp8_token", residual=True),
    _of("rmsnorm fp8 128", "norm_quantize", quant="fp8_group"),
    _of("add fp8 128", "norm_quantize", quant="fp8_group", residual=True),
    _of("rmsnorm nvfp4", "rmsnorm_fp4quant"),
    _of("rmsnorm mxfp4", "rmsnorm_fp4quant", quant="mxfp4"),
    _of("rmsnorm mxfp8", "rmsnorm_mxfp8quant"),
    _ADD_NVFP4,
    _of("add mxfp4", "add_rmsnorm_fp4quant", quant="mxfp4"),
    _of("add mxfp8", "add_rmsnorm_mxfp8quant"),
    _of("nvfp4 alone", "quantize", quant="nvfp4"),
    _of("mxfp4 alone", "quantize", quant="mxfp4"),
    _of("mxfp8 alone", "quantize", quant="mxfp8"),
    replace(
        _ADD_NVFP4, name="chain of 20", bytes_per_element=CHAIN * _ADD_NVFP4.bytes_per_element, make=chain(),
        most_rows=64,
    ),
    _of("layernorm", "layernorm", only_large=True),
    _of("layernorm alone", "layernorm", weight="none", only_large=True),
    _of("layernorm bf16", "layernorm", weight="bfloat16", only_large=True),
    _of("gated add", "gated_add_layernorm", gate_bias=True, only_large=True),
    _of("adaptive", "adaptive_layernorm", residual=True, gate_bias=True, modulation_bias=True, only_large=True),
    _of("adaptive mxfp8", "adaptive_layernorm_quantize", quant="mxfp8", residual=True, only_large=True),
    _of("rmsnorm silu", "rmsnorm_silu", only_large=True),
    _of("rmsnorm multi", "rmsnorm_multi", only_large=True),
    _of("sandwich", "sandwich_rmsnorm", only_large=True),
    _of("sandwich nvfp4", "sandwich_norm_quantize", quant="nvfp4", only_large=True),
    _of("gated", "rmsnorm_gated", only_large=True),
    _of("gated input", "rmsnorm_gated", gate="input", only_large=True),
    _of("gated fp8", "rmsnorm_gated_quantize", quant="fp8", only_large=True),
    _of("gated fp8 token", "rmsnorm_gated_quantize", quant="fp8_token", only_large=True),
    _of("gated nvfp4", "rmsnorm_gated_quantize", quant="nvfp4", only_large=True),
    _of("rmsnorm silu nvfp4", "norm_quantize", quant="nvfp4", activation="silu", only_large=True),
    _of("layernorm with statistics", "layernorm_with_statistics", only_large=True),
    _of("layernorm fp8", "layernorm_quantize", quant="fp8", rounding="output", only_large=True),
    _of("layernorm fp8 token", "layernorm_quantize", quant="fp8_token", only_large=True),
    _of("layernorm mxfp8", "layernorm_quantize", quant="mxfp8", only_large=True),
    replace(
        Measured("q_kv_rmsnorm", "q_kv_rmsnorm", {}, 1.25 * _RMSNORM.bytes_per_element, _q_kv, (1, 64)),
        lengths=lambda h: {"hidden_size": h, "second_size": h // 4}, only_large=True,
    ),
    _of("rmsnorm batched", "rmsnorm_batched", only_large=True),
    _of("rmsnorm alone", "rmsnorm", weight="none", only_large=True),
    _of("rmsnorm backward", "rmsnorm_backward", only_large=True),
    _of("add backward", "rmsnorm_backward", residual=True, only_large=True),
    _of("layernorm backward", "layernorm_backward", only_large=True),
    _of("nvfp4 by row", "norm_quantize", quant="nvfp4", global_scale="row", only_large=True),
    _of("nvfp4 by tensor", "quantize", quant="nvfp4", global_scale="tensor", only_large=True),
    _of("fp8 128 alone", "quantize", quant="fp8_group", only_large=True),
    _of("fp8 16 alone", "quantize", quant="e4m3/16/f32", only_large=True),
    _of("fp8 96 alone", "quantize", quant="e4m3/96/f32"),
    _of("fp8 by columns", "quantize", quant="e4m3/column/f32/linear/given", only_large=True),
    _of("fp8 128 by given", "quantize", quant="e4m3/128/f32/linear/given", only_large=True),
    _of("int8 token", "norm_quantize", quant="int8_token", only_large=True),
    _of("add int8 token", "norm_quantize", quant="int8_token", residual=True, only_large=True),
    _of("int8 128 alone", "quantize", quant="int8_group", only_large=True),
    _of("four over six", "quantize", quant="nvfp4", four_over_six=True, only_large=True),
    _of("nvfp4 batched", "nvfp4_batched_quantize", only_large=True),
    _of("mxfp8 grouped", "mxfp8_grouped_quantize", only_large=True),
    _of("nvfp4 grouped", "scaled_fp4_grouped_quantize", only_large=True),
    _of("silu nvfp4 grouped", "silu_and_mul_scaled_nvfp4_experts_quantize", only_large=True),
    _of("nvfp4 experts", "grouped_quantize", quant="nvfp4", layout="128x4", only_large=True),
    _of("silu mxfp4 experts", "silu_and_mul_grouped_quantize", quant="mxfp4", layout="128x4", only_large=True),
    _of("silu nvfp4", "silu_and_mul_quantize", quant="nvfp4", only_large=True),
    _of("silu nvfp4 by 8", "silu_and_mul_quantize", quant="nvfp4", gate_columns=8, only_large=True),
    _of("silu mxfp8", "silu_and_mul_quantize", quant="mxfp8", only_large=True),
    _of("silu fp8 128", "silu_and_mul_quantize", quant="fp8_group", only_large=True),
    _of("silu fp8", "silu_and_mul_quantize", quant="fp8", only_large=True),
    _of("silu fp8 token", "silu_and_mul_quantize", quant="fp8_token", only_large=True),
    _of("silu", "silu_and_mul", only_large=True),
    _of("gelu", "gelu_and_mul", only_large=True),
    _of("gelu tanh", "gelu_tanh_and_mul", only_large=True),
    _of("swigluoai", "swigluoai_and_mul", only_large=True),
    _of("silu clamped", "silu_and_mul_with_clamp", only_large=True),
    _of("silu last", "mul_and_silu", only_large=True),
    _of("fatrelu", "fatrelu_and_mul", only_large=True),
    _of("gelu quick alone", "gelu_quick", only_large=True),
    _of("gelu alone", "gelu", only_large=True),
    _of("gelu tanh alone", "gelu_tanh", only_large=True),
    _of("relu2 alone", "relu2", only_large=True),
    _of("gelu nvfp4", "silu_and_mul_quantize", quant="nvfp4", activation="gelu", only_large=True),
    _of("gelu tanh nvfp4", "silu_and_mul_quantize", quant="nvfp4", activation="gelu_tanh", only_large=True),
    _of(
        "swigluoai mxfp8", "silu_and_mul_quantize", quant="mxfp8", activation="swigluoai", gate_columns=1,
        only_large=True,
    ),
    _of("silu clamped fp8 128", "silu_and_mul_quantize", quant="fp8_group", activation="swiglu:7:1:0", only_large=True),
    _of("relu2 nvfp4", "quantize", quant="nvfp4", activation="relu2", only_large=True),
    _of("gelu alone nvfp4", "quantize", quant="nvfp4", activation="gelu", only_large=True),
    _of("mhc 4", "mhc_rmsnorm_quantize", streams=4, weight="float32", only_large=True),
    _of("mhc 2", "mhc_rmsnorm_quantize", streams=2, weight="float32", only_large=True),
    _of("mhc post", "mhc_post", only_large=True),
    _of("mhc pre", "mhc_pre", only_large=True),
    _of("mhc pre with prenorm", "mhc_pre_with_prenorm", only_large=True),
    _of("decode nvfp4", "dequantize", quant="nvfp4", only_large=True),
    _of("decode mxfp8", "dequantize", quant="mxfp8", only_large=True),
    _of("weight nvfp4", "quantize_weight", only_large=True),
    _of("decode mxfp8 f32", "dequantize", quant="mxfp8", input="float32", only_large=True),
    _of("rmsnorm nvfp4 128x4", "rmsnorm_fp4quant", layout="128x4"),
    _of("nvfp4 alone 128x4", "quantize", quant="nvfp4", layout="128x4"),
    _of("mxfp8 alone 128x4", "quantize", quant="mxfp8", layout="128x4"),
    _of("weight fp8", "quantize", quant="fp8_block", only_large=True),
    _of("amax", "compute_amax", only_large=True),
)  # fmt: skip


def op_named(name: str) -> Measured:
    """Look up an op by name.

    Raises:
        ValueError: no op has it.

    Example:
        >>> op_named("rmsnorm fp8").bytes_per_element
        3.0
    """
    for op in OPS:
        if op.name == name:
            return op
    names = [op.name for op in OPS]
    raise ValueError(f"name: is {name!r}; allowed are {', '.join(names)}{did_you_mean(name, names)}")


def ops_named(parts: Sequence[str]) -> list[Measured]:
    """Look up the op of each name, or else all ops whose names contain it; all ops if no names are given.

    Raises:
        ValueError: no name contains one of them.

    Example:
        >>> [op.name for op in ops_named(["decode"])]
        ['decode nvfp4', 'decode mxfp8', 'decode mxfp8 f32']
    """
    names = [op.name for op in OPS]
    chosen: set[str] = set()
    for part in parts:
        found = {part} & set(names) or {name for name in names if part in name}
        if not found:
            meant = did_you_mean(part, names)
            raise ValueError(f"ops: {part!r} matches no op; the names are {', '.join(names)}{meant}")
        chosen |= found
    return [op for op in OPS if not parts or op.name in chosen]
