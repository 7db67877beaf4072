"""What is measured: each op, the bytes that it moves, and how jitnorm is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jitnorm
from jitnorm.bench.shapes import Shape, Shapes
from jitnorm.bench.tensors import Tensors

Call = Callable[[], Any]
Maker = Callable[[Tensors, int, int], Call]
"""From M and H to a call on tensors of its own."""

CHAIN = 20  # calls


@dataclass(frozen=True)
class Op:
    """An op over bfloat16 input of shape (M, H).

    Attributes:
        name: of the op and its format.
        bytes_per_element: what it reads and writes for each element of (M, H).
        make: the call of jitnorm.
        multiples: what M and H have to be multiples of.
        only_large: whether it is measured on large tensors only.
        most_rows: with more it is not measured; None: with any number.
    """

    name: str
    bytes_per_element: float
    make: Maker
    multiples: Shape = (1, 1)
    only_large: bool = False
    most_rows: int | None = None

    def shapes(self, shapes: Shapes) -> list[Shape]:
        """Those that it is measured at; the ones that it does not take are left out."""
        rows, hidden_size = self.multiples
        chosen = shapes.large if self.only_large else shapes.usual
        taken = [(m, h) for m, h in chosen if m % rows == 0 and h % hidden_size == 0]
        return [(m, h) for m, h in taken if self.most_rows is None or m <= self.most_rows]


def _rmsnorm(op: Callable[..., Any]) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, w, out = new.bfloat16(m, h), new.bfloat16(h), new.empty(m, h)
        return lambda: op(x, w, out=out)

    return make


def _add(op: Callable[..., Any]) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
        return lambda: op(x, r, w)

    return make


def _fp8(new: Tensors, m: int, h: int) -> Call:
    x, w, out, scale = new.bfloat16(m, h), new.bfloat16(h), new.fp8(m, h), new.one()
    return lambda: jitnorm.rmsnorm_quant(out, x, w, scale)


def _add_fp8(new: Tensors, m: int, h: int) -> Call:
    x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
    out, scale = new.fp8(m, h), new.one()
    return lambda: jitnorm.fused_add_rmsnorm_quant(out, x, r, w, scale)


def _fp4(block_size: int) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, w = new.bfloat16(m, h), new.bfloat16(h)
        codes, scales = jitnorm.rmsnorm_fp4quant(x, w, block_size=block_size)
        return lambda: jitnorm.rmsnorm_fp4quant(x, w, codes, scales, block_size=block_size)

    return make


def _add_fp4(block_size: int) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
        codes, scales = jitnorm.add_rmsnorm_fp4quant(x, r, w, block_size=block_size)
        return lambda: jitnorm.add_rmsnorm_fp4quant(x, r, w, codes, scales, block_size=block_size)

    return make


def chain(enable_pdl: bool | None = None) -> Maker:
    """Calls that wait for each other, as the layers of a model do."""

    def make(new: Tensors, m: int, h: int) -> Call:
        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
        codes, scales = jitnorm.add_rmsnorm_fp4quant(x, r, w)

        def call() -> None:
            for _ in range(CHAIN):
                jitnorm.add_rmsnorm_fp4quant(x, r, w, codes, scales, enable_pdl=enable_pdl)

        return call

    return make


def _mxfp8(new: Tensors, m: int, h: int) -> Call:
    x, w = new.bfloat16(m, h), new.bfloat16(h)
    codes, scales = jitnorm.rmsnorm_mxfp8quant(x, w)
    return lambda: jitnorm.rmsnorm_mxfp8quant(x, w, codes, scales)


def _add_mxfp8(new: Tensors, m: int, h: int) -> Call:
    x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
    codes, scales = jitnorm.add_rmsnorm_mxfp8quant(x, r, w)
    return lambda: jitnorm.add_rmsnorm_mxfp8quant(x, r, w, codes, scales)


def _norm(spec: jitnorm.QuantSpec) -> Maker:
    """`norm_quantize`, which allocates its outputs."""

    def make(new: Tensors, m: int, h: int) -> Call:
        x, w = new.bfloat16(m, h), new.bfloat16(h)
        return lambda: jitnorm.norm_quantize(x, w, spec=spec)

    return make


def _add_norm(spec: jitnorm.QuantSpec) -> Maker:
    """The same after a residual."""

    def make(new: Tensors, m: int, h: int) -> Call:
        x, r, w = new.bfloat16(m, h), new.bfloat16(m, h), new.bfloat16(h)
        return lambda: jitnorm.norm_quantize(x, w, spec=spec, residual=r)

    return make


def _alone(spec: jitnorm.QuantSpec) -> Maker:
    """`quantize`, which allocates its outputs."""

    def make(new: Tensors, m: int, h: int) -> Call:
        x = new.bfloat16(m, h)
        return lambda: jitnorm.quantize(x, spec=spec)

    return make


def _gated(spec: jitnorm.QuantSpec, granularity: int | None = None) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x = new.bfloat16(m, 2 * h)
        return lambda: jitnorm.silu_and_mul_quantize(x, spec=spec, granularity=granularity)

    return make


def _layernorm(new: Tensors, m: int, h: int) -> Call:
    x, gamma, beta, out = new.bfloat16(m, h), new.float32(h), new.float32(h), new.empty(m, h)
    return lambda: jitnorm.layernorm(x, gamma, beta, out=out)


def _qk(new: Tensors, m: int, h: int) -> Call:
    """In place in a packed tensor of heads of 128: as many queries as values, a quarter of keys."""
    heads = h // 128
    qkv, w = new.bfloat16(m, heads + 2 * (heads // 4), 128), new.bfloat16(128)
    q, k = qkv[:, :heads], qkv[:, heads : heads + heads // 4]
    return lambda: jitnorm.qk_rmsnorm(q, k, w, w, q_out=q, k_out=k)


def _mhc(streams: int) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x, factors, w = new.bfloat16(m, streams, h), new.float32(m, streams), new.float32(h)
        return lambda: jitnorm.mhc_rmsnorm_quantize(x, factors, w)

    return make


def _dequantize(spec: jitnorm.QuantSpec) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        q, out = jitnorm.quantize(new.bfloat16(m, h), spec=spec), new.bfloat16(m, h)
        return lambda: jitnorm.dequantize(q, out=out)

    return make


def _of_input(op: Callable[[Any], Any]) -> Maker:
    def make(new: Tensors, m: int, h: int) -> Call:
        x = new.bfloat16(m, h)
        return lambda: op(x)

    return make


def _batched(new: Tensors, m: int, h: int) -> Call:
    x, scale = new.bfloat16(8, m // 8, h), new.one()
    return lambda: jitnorm.nvfp4_batched_quantize(x, scale)


_NVFP4, _MXFP4, _MXFP8, _GROUP = jitnorm.NVFP4, jitnorm.MXFP4, jitnorm.MXFP8, jitnorm.FP8_GROUP

OPS = (
    Op("rmsnorm", 4, _rmsnorm(jitnorm.rmsnorm)),
    Op("gemma", 4, _rmsnorm(jitnorm.gemma_rmsnorm)),
    Op("add_rmsnorm", 8, _add(jitnorm.fused_add_rmsnorm)),
    Op("add gemma", 8, _add(jitnorm.gemma_fused_add_rmsnorm)),
    Op("qk_rmsnorm", 5, _qk, (1, 512)),
    Op("rmsnorm fp8", 3, _fp8),
    Op("add fp8", 7, _add_fp8),
    Op("fp8 token", 3, _norm(jitnorm.FP8_TOKEN)),
    Op("add fp8 token", 7, _add_norm(jitnorm.FP8_TOKEN)),
    Op("rmsnorm fp8 128", 3.03125, _norm(_GROUP), (1, 128)),
    Op("add fp8 128", 7.03125, _add_norm(_GROUP), (1, 128)),
    Op("rmsnorm nvfp4", 2.5625, _fp4(16), (1, 16)),
    Op("rmsnorm mxfp4", 2.53125, _fp4(32), (1, 32)),
    Op("rmsnorm mxfp8", 3.03125, _mxfp8, (1, 32)),
    Op("add nvfp4", 6.5625, _add_fp4(16), (1, 16)),
    Op("add mxfp4", 6.53125, _add_fp4(32), (1, 32)),
    Op("add mxfp8", 7.03125, _add_mxfp8, (1, 32)),
    Op("nvfp4 alone", 2.5625, _alone(_NVFP4), (1, 16)),
    Op("mxfp4 alone", 2.53125, _alone(_MXFP4), (1, 32)),
    Op("mxfp8 alone", 3.03125, _alone(_MXFP8), (1, 32)),
    Op("chain of 20", CHAIN * 6.5625, chain(), (1, 16), most_rows=64),
    Op("layernorm", 4, _layernorm, only_large=True),
    Op("nvfp4 by row", 2.5625, _norm(_NVFP4.with_global_scale("row")), (1, 16), only_large=True),
    Op("nvfp4 by tensor", 4.5625, _alone(_NVFP4.with_global_scale("tensor")), (1, 16), only_large=True),
    Op("fp8 128 alone", 3.03125, _alone(_GROUP), (1, 128), only_large=True),
    Op("four over six", 2.5625, _alone(replace(_NVFP4, four_over_six=True)), (1, 16), only_large=True),
    Op("nvfp4 batched", 2.5625, _batched, (8, 16), only_large=True),
    Op("silu nvfp4", 4.5625, _gated(_NVFP4), (1, 16), only_large=True),
    Op("silu nvfp4 by 8", 4.5625, _gated(_NVFP4, 8), (1, 16), only_large=True),
    Op("silu mxfp8", 5.03125, _gated(_MXFP8), (1, 32), only_large=True),
    Op("mhc 4", 8.5625, _mhc(4), (1, 16), only_large=True),
    Op("mhc 2", 4.5625, _mhc(2), (1, 16), only_large=True),
    Op("decode nvfp4", 2.5625, _dequantize(_NVFP4), (1, 16), only_large=True),
    Op("decode mxfp8", 3.03125, _dequantize(_MXFP8), (1, 32), only_large=True),
    Op("weight nvfp4", 2.5625, _of_input(jitnorm.quantize_weight), (16, 1), only_large=True),
    Op("amax", 2, _of_input(jitnorm.compute_amax), only_large=True),
)


def op_named(name: str) -> Op:
    """The op of this name; ValueError if there is none.

    Example:
        >>> op_named("rmsnorm fp8").bytes_per_element
        3.0
    """
    for op in OPS:
        if op.name == name:
            return op
    raise ValueError(f"name: is {name!r}, which is no op's")


def ops_named(parts: Sequence[str]) -> list[Op]:
    """The op of each name, or where there is none those whose names contain it; all of them without any.

    Raises:
        ValueError: a part is in no name.

    Example:
        >>> [op.name for op in ops_named(["decode"])]
        ['decode nvfp4', 'decode mxfp8']
    """
    names = [op.name for op in OPS]
    chosen: set[str] = set()
    for part in parts:
        found = {part} & set(names) or {name for name in names if part in name}
        if not found:
            raise ValueError(f"ops: {part!r} is in no op's name; these are {', '.join(names)}")
        chosen |= found
    return [op for op in OPS if not parts or op.name in chosen]
