"""Golden cases of norms other than RMSNorm: rounded, finished, gated, over several rows, and their gradients."""

from __future__ import annotations

import numpy as np
from golden_data import HALVES, Array, Make, OpCase, Outputs, bias, heads, parts, weight, x
from jitnorm.kernels.quant_spec import MXFP8

import jitnorm
from jitnorm import reference


def gemma_norm(rows: Array) -> Array:
    y = reference.rmsnorm_f32(rows.reshape(-1, 128), weight()[:128], weight_bias=1.0)
    return reference.round_to(y, rows.dtype).reshape(rows.shape)


def biased() -> Array:
    return reference.rmsnorm_f32(x(), weight(), bias=bias())


def gates(like: Array | None = None) -> Array:
    return (HALVES.input() if like is None else like)[::-1].copy()


def gated() -> Outputs:
    by_groups = reference.gated_rmsnorm_f32(
        x(), gates(x()), weight(), norm_before_gate=False, group_size=96, bias=bias()
    )
    rows = HALVES.input()
    y = reference.gated_rmsnorm_f32(rows, gates(), HALVES.weight(), "sigmoid")
    return reference.round_to(y, rows.dtype), reference.round_to(by_groups, x().dtype)


def gate_branch(make: Make) -> Outputs:
    tensors = map(make, (x(), x()[::-1].copy(), gates(x()), weight(), bias()))
    return jitnorm.gated_add_layernorm(*tensors, gate_bias=make(bias()))


def gated_branch() -> Outputs:
    h = reference.branch_sum_f32(x(), x()[::-1], gates(x()), bias())
    return reference.round_to(reference.layernorm_f32(h, weight(), bias()), x().dtype), reference.round_to(h, x().dtype)


def modulate(make: Make) -> Outputs:
    of_norm = {"residual": make(x()[::-1].copy()), "scale_bias": make(weight()), "shift_bias": make(bias())}
    tensors = map(make, (x(), gates(x()), x()))
    q, total = jitnorm.adaptive_layernorm_quantize(*tensors, spec=MXFP8, rounding="output", **of_norm)
    return *parts(q), total


def modulated() -> Outputs:
    h = reference.branch_sum_f32(x(), x()[::-1])
    y = reference.adaptive_layernorm_f32(h, gates(x()), x(), scale_bias=weight(), shift_bias=bias())
    rounded = reference.round_to(y, x().dtype).astype(np.float32)
    return *reference.quantize_mxfp8(rounded), reference.round_to(h, x().dtype)


def by_each_weight(make: Make) -> Outputs:
    return jitnorm.add_rmsnorm_multi(make(x()), make(x()[::-1].copy()), make(np.stack([weight(), bias()])))


def by_one_weight_after_another() -> Outputs:
    norms = [reference.rmsnorm_f32(x(), each, residual=x()[::-1]) for each in (weight(), bias())]
    return np.stack([reference.round_to(y, x().dtype) for y in norms]), reference.stored_residual(x(), x()[::-1])


def sandwich(make: Make) -> Outputs:
    backwards = make(x()[::-1].copy())
    return jitnorm.sandwich_rmsnorm(make(x()), backwards, make(bias()), make(weight()), unit_bias=True)


def encode_sandwich(make: Make) -> Outputs:
    tensors = map(make, (x(), x()[::-1].copy(), bias(), weight()))
    q, total = jitnorm.sandwich_norm_quantize(*tensors, spec=MXFP8, unit_bias=True, rounding="hf")
    return *parts(q), total


def sandwiched(rounding: reference.Rounding) -> Outputs:
    y, total = reference.sandwich_rmsnorm_f32(x(), x()[::-1], bias(), weight(), weight_bias=1.0, rounding=rounding)
    return (reference.round_to(y, x().dtype), total) if rounding == "once" else (*reference.quantize_mxfp8(y), total)


def rounded_each_step() -> Array:
    return reference.rmsnorm_f32(HALVES.input(), HALVES.weight(), rounding="hf")


def rounded_sum(rounding: reference.Rounding) -> Outputs:
    y = reference.rmsnorm_f32(x(), weight(), residual=x()[::-1], rounding=rounding)
    return (*reference.quantize_mxfp8(y), reference.stored_residual(x(), x()[::-1]))


def add_rounded(make: Make, rounding: str) -> Outputs:
    backwards = make(x()[::-1].copy())
    q, total = jitnorm.add_norm_quantize(make(x()), backwards, make(weight()), spec=MXFP8, rounding=rounding)
    return (*parts(q), total)


def rounded_norm() -> Outputs:
    y = reference.rmsnorm_f32(x(), weight(), rounding="output")
    return reference.quantize_fp4(y, block_size=16, scale_format="e4m3")


def layernorm_gradients(make: Make) -> Outputs:
    """Gradients, given the rows in reverse order as those of the output, with the statistics of the norm."""
    _, mean, rstd = jitnorm.layernorm_with_statistics(make(x()), make(weight()), make(bias()))
    return jitnorm.layernorm_backward(make(x()[::-1].copy()), make(x()), mean, rstd, make(weight()))


def expected_layernorm_gradients() -> Outputs:
    statistics = reference.layernorm_statistics_f32(x())
    found, *of_parameters = reference.layernorm_backward_f32(x()[::-1].copy(), x(), *statistics, weight())
    return reference.round_to(found, x().dtype), *of_parameters


NORMS = [
    OpCase(
        "rmsnorm-hf",
        lambda make: (jitnorm.rmsnorm(make(HALVES.input()), make(HALVES.weight()), rounding="hf"),),
        lambda: (reference.round_to(rounded_each_step(), np.float16),),
    ),
    OpCase("add_norm_quantize-hf", lambda make: add_rounded(make, "hf"), lambda: rounded_sum("hf")),
    OpCase("add_norm_quantize-vllm", lambda make: add_rounded(make, "vllm"), lambda: rounded_sum("vllm")),
    OpCase(
        "rmsnorm_fp4quant-output",
        lambda make: jitnorm.rmsnorm_fp4quant(make(x()), make(weight()), rounding="output"),
        rounded_norm,
    ),
    OpCase(
        "rmsnorm_bias",
        lambda make: (jitnorm.rmsnorm_bias(make(x()), make(weight()), make(bias())),),
        lambda: (reference.round_to(biased(), x().dtype),),
    ),
    OpCase(
        "rmsnorm_silu-hf",
        lambda make: (jitnorm.rmsnorm_silu(make(HALVES.input()), make(HALVES.weight()), rounding="hf"),),
        lambda: (
            reference.round_to(
                reference.activated_rmsnorm_f32(HALVES.input(), HALVES.weight(), "silu", rounding="hf"), np.float16
            ),
        ),
    ),
    OpCase(
        "norm_quantize-gelu",
        lambda make: parts(jitnorm.norm_quantize(make(x()), make(weight()), spec=MXFP8, activation="gelu")),
        lambda: reference.quantize_mxfp8(reference.activated_rmsnorm_f32(x(), weight(), "gelu")),
    ),
    OpCase(
        "rmsnorm_gated",
        lambda make: (
            jitnorm.rmsnorm_gated(make(HALVES.input()), make(gates()), make(HALVES.weight()), activation="sigmoid"),
            jitnorm.rmsnorm_gated(
                make(x()), make(gates(x())), make(weight()), norm_before_gate=False, group_size=96, bias=make(bias())
            ),
        ),
        gated,
    ),
    OpCase(
        "rmsnorm_gated_quantize-hf",
        lambda make: parts(
            jitnorm.rmsnorm_gated_quantize(make(x()), make(gates(x())), make(weight()), spec=MXFP8, rounding="hf")
        ),
        lambda: reference.quantize_mxfp8(reference.gated_rmsnorm_f32(x(), gates(x()), weight(), rounding="hf")),
    ),
    OpCase("gated_add_layernorm", gate_branch, gated_branch),
    OpCase("adaptive_layernorm_quantize-output", modulate, modulated),
    OpCase("add_rmsnorm_multi", by_each_weight, by_one_weight_after_another),
    OpCase("sandwich_rmsnorm", sandwich, lambda: sandwiched("once")),
    OpCase("sandwich_norm_quantize-hf", encode_sandwich, lambda: sandwiched("hf")),
    OpCase(
        "norm_quantize-bias",
        lambda make: parts(jitnorm.norm_quantize(make(x()), make(weight()), bias=make(bias()), spec=MXFP8)),
        lambda: reference.quantize_mxfp8(biased()),
    ),
    OpCase(
        "layernorm",
        lambda make: (jitnorm.layernorm(make(x()), make(weight()), make(bias())),),
        lambda: (reference.round_to(reference.layernorm_f32(x(), weight(), bias()), x().dtype),),
    ),
    OpCase(
        "layernorm_with_statistics",
        lambda make: jitnorm.layernorm_with_statistics(make(x()), make(weight()), make(bias())),
        lambda: (
            reference.round_to(reference.layernorm_f32(x(), weight(), bias()), x().dtype),
            *reference.layernorm_statistics_f32(x()),
        ),
    ),
    OpCase("layernorm_backward", layernorm_gradients, expected_layernorm_gradients),
    OpCase(
        "layernorm_quantize-output",
        lambda make: parts(
            jitnorm.layernorm_quantize(make(x()), make(weight()), make(bias()), spec=MXFP8, rounding="output")
        ),
        lambda: reference.quantize_mxfp8(
            reference.round_to(reference.layernorm_f32(x(), weight(), bias()), x().dtype).astype(np.float32)
        ),
    ),
    OpCase(
        "norms-without-weight",
        lambda make: (jitnorm.rmsnorm(make(x()), None), jitnorm.layernorm(make(x()), None, None)),
        lambda: tuple(
            reference.round_to(y, x().dtype)
            for y in (reference.rmsnorm_f32(x(), None), reference.layernorm_f32(x(), None, None))
        ),
    ),
    OpCase(
        "q_kv_rmsnorm",
        lambda make: jitnorm.q_kv_rmsnorm(
            make(x()[:, :288]), make(x()[:, 288:]), make(weight()[:288]), make(weight()[288:])
        ),
        lambda: tuple(
            reference.round_to(reference.rmsnorm_f32(x()[:, part], weight()[part]), x().dtype)
            for part in (slice(288), slice(288, 384))
        ),
    ),
    OpCase(
        "gemma_qk_rmsnorm",
        lambda make: jitnorm.gemma_qk_rmsnorm(
            make(heads()[:, :2]), make(heads()[:, 2:]), make(weight()[:128]), make(weight()[:128])
        ),
        lambda: (gemma_norm(heads()[:, :2]), gemma_norm(heads()[:, 2:])),
    ),
]
