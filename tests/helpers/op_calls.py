"""A real call of every op that a specification can name, with contiguous NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import jitnorm
from jitnorm.warm.formats import read_format

DTYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float32": np.float32,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "uint8": np.uint8,
}
ONE = np.ones(1, np.float32)
MATRICES = 2


class Call(NamedTuple):
    """Choices of a specification, and the call that they mean, for a number of rows."""

    op: str
    choices: dict[str, Any]
    make: Callable[[int], Any]


def rows(count: int, size: int, dtype: str = "bfloat16", *leading: int) -> Any:
    return np.zeros((*leading, count, size), DTYPES[dtype])


def weight(size: int, dtype: str = "bfloat16") -> Any:
    return np.ones(size, DTYPES[dtype])


class _FourOverSix:
    e4m3_max, err_mode, err_use_fast_math = 448, "MSE", False


def calls() -> list[Call]:
    found: list[Call] = []

    def add(op: str, choices: dict[str, Any], make: Callable[[int], Any]) -> None:
        found.append(Call(op, choices, make))

    _add_plain_norms(add)
    _add_fp4_norms(add)
    _add_fp8_norms(add)
    _add_general(add)
    _add_quantizers(add)
    _add_batches(add)
    _add_decoders_and_moves(add)
    return found


def _add_plain_norms(add: Any) -> None:
    for name in ("rmsnorm", "gemma_rmsnorm"):
        op = getattr(jitnorm, name)
        for size in (64, 100, 7, 4096, 70001):
            add(name, {"hidden_size": size}, lambda m, op=op, size=size: op(rows(m, size), weight(size)))
        for input_, weight_ in (("float16", "float32"), ("float32", "")):
            add(name, {"hidden_size": 96, "input": input_, "weight": weight_},
                lambda m, op=op, i=input_, w=weight_: op(rows(m, 96, i), weight(96, w or i)))  # fmt: skip
        add(name, {"hidden_size": 96, "pdl": False}, lambda m, op=op: op(rows(m, 96), weight(96), enable_pdl=False))
    for name in ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm"):
        op = getattr(jitnorm, name)
        for size in (64, 100, 4096):
            add(name, {"hidden_size": size},
                lambda m, op=op, size=size: op(rows(m, size), rows(m, size), weight(size)))  # fmt: skip
    add("layernorm", {"hidden_size": 4096},
        lambda m: jitnorm.layernorm(rows(m, 4096), weight(4096, "float32"), weight(4096, "float32")))  # fmt: skip
    for name in ("qk_rmsnorm", "gemma_qk_rmsnorm"):
        op = getattr(jitnorm, name)

        def packed(m: int, op: Any = op) -> None:
            qkv = np.zeros((m, 12, 128), DTYPES["bfloat16"])
            w = weight(128)
            op(qkv[:, :8], qkv[:, 8:10], w, w, q_out=qkv[:, :8], k_out=qkv[:, 8:10])
            op(rows(m, 128), rows(m, 128), w, w)

        add(name, {"hidden_size": 128}, packed)


def _add_fp4_norms(add: Any) -> None:
    layouts = {"linear": {}, "128x4": {"is_sf_swizzled_layout": True},
               "linear+128x4": {"output_both_sf_layouts": True}}  # fmt: skip
    formats = {"nvfp4": (16, None), "mxfp4": (32, None), "e2m1/32/e4m3": (32, "e4m3"), "e2m1/16/ue8m0": (16, "ue8m0")}
    for layout, flags in layouts.items():
        for quant, (block, scales) in formats.items():
            options = {**flags, "block_size": block, "scale_format": scales}
            choices = {"hidden_size": 4096, "quant": quant, "layout": layout}
            add("rmsnorm_fp4quant", choices,
                lambda m, o=options: jitnorm.rmsnorm_fp4quant(rows(m, 4096), weight(4096), **o))  # fmt: skip
            add("add_rmsnorm_fp4quant", choices,
                lambda m, o=options: jitnorm.add_rmsnorm_fp4quant(
                    rows(m, 4096), rows(m, 4096), weight(4096), **o))  # fmt: skip
    given = {"hidden_size": 16 * 13, "layout": "linear", "global_scale": "given"}
    add("rmsnorm_fp4quant", given,
        lambda m: jitnorm.rmsnorm_fp4quant(rows(m, 208), weight(208), global_scale=ONE))  # fmt: skip
    add("rmsnorm_fp4quant", {"hidden_size": 48}, lambda m: jitnorm.rmsnorm_fp4quant(rows(m, 48), weight(48)))
    add("add_rmsnorm_fp4quant", {**given, "keep_norm": True},
        lambda m: jitnorm.add_rmsnorm_fp4quant(
            rows(m, 208), rows(m, 208), weight(208), global_scale=ONE, y_out=rows(m, 208)))  # fmt: skip
    for layout, flags in layouts.items():
        add("rmsnorm_mxfp8quant", {"hidden_size": 2048, "layout": layout},
            lambda m, o=flags: jitnorm.rmsnorm_mxfp8quant(rows(m, 2048), weight(2048), **o))  # fmt: skip
        add("add_rmsnorm_mxfp8quant", {"hidden_size": 2048, "layout": layout, "keep_norm": True},
            lambda m, o=flags: jitnorm.add_rmsnorm_mxfp8quant(
                rows(m, 2048), rows(m, 2048), weight(2048), y_out=rows(m, 2048), **o))  # fmt: skip
    for layout in ("linear", "128x4", "8x4"):
        add("rmsnorm_quantize", {"hidden_size": 4096, "layout": layout},
            lambda m, layout=layout: jitnorm.rmsnorm_quantize(
                rows(m, 4096), weight(4096), scale_layout=layout))  # fmt: skip
    for streams in (1, 4):
        add("mhc_rmsnorm_quantize", {"hidden_size": 1024, "streams": streams},
            lambda m, n=streams: jitnorm.mhc_rmsnorm_quantize(
                rows(n, 1024, "bfloat16", m), np.ones((m, n), np.float32), weight(1024)))  # fmt: skip
    add("mhc_rmsnorm_quantize", {"hidden_size": 1024},
        lambda m: jitnorm.mhc_rmsnorm_quantize(
            rows(4, 1024, "bfloat16", m), np.ones((m, 4), np.float32), weight(1024)))  # fmt: skip


def _add_fp8_norms(add: Any) -> None:
    elements = {"fp8": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}
    for quant, dtype in elements.items():
        for name in ("rmsnorm_quant", "gemma_rmsnorm_quant", "rms_norm_static_fp8_quant"):
            add(name, {"hidden_size": 100, "quant": quant},
                lambda m, name=name, dtype=dtype: getattr(jitnorm, name)(
                    np.zeros((m, 100), dtype), rows(m, 100), weight(100), ONE, 1e-6))  # fmt: skip
        for name in (
            "fused_add_rmsnorm_quant", "gemma_fused_add_rmsnorm_quant", "fused_add_rms_norm_static_fp8_quant",
        ):  # fmt: skip
            add(name, {"hidden_size": 4096, "quant": quant},
                lambda m, name=name, dtype=dtype: getattr(jitnorm, name)(
                    np.zeros((m, 4096), dtype), rows(m, 4096), rows(m, 4096), weight(4096), ONE, 1e-6))  # fmt: skip
    for keep in (False, True):
        add("fused_add_rmsnorm_fp8_block_quant", {"hidden_size": 1024, "keep_norm": keep},
            lambda m, keep=keep: jitnorm.fused_add_rmsnorm_fp8_block_quant(
                np.zeros((m, 1024), elements["fp8"]), np.zeros((8, -(-m // 4) * 4), np.float32),
                rows(m, 1024) if keep else None, rows(m, 1024), rows(m, 1024), weight(1024)))  # fmt: skip
    for residual in (False, True):
        for quant, dtype in (("fp8_token", "float8_e4m3fn"), ("fp8_token_e5m2", "float8_e5m2")):
            add("rms_norm_dynamic_per_token_quant",
                {"hidden_size": 4096, "quant": quant, "residual": residual, "scale_ub": residual},
                lambda m, r=residual, d=dtype: jitnorm.rms_norm_dynamic_per_token_quant(
                    rows(m, 4096), weight(4096), 1e-6, d, ONE if r else None,
                    rows(m, 4096) if r else None))  # fmt: skip
        for layout, flags in (("linear", {}), ("column", {"is_scale_transposed": True}),
                              ("column4", {"is_scale_transposed": True, "has_tma_aligned_scales": True})):  # fmt: skip
            for quant, group in (("fp8_group", 128), ("fp8_group64", 64)):
                add("rms_norm_per_block_quant",
                    {"hidden_size": 4096, "quant": quant, "layout": layout, "residual": residual},
                    lambda m, r=residual, g=group, f=flags: jitnorm.rms_norm_per_block_quant(
                        rows(m, 4096), weight(4096), 1e-6, "float8_e4m3fn", [1, g],
                        residual=rows(m, 4096) if r else None, **f))  # fmt: skip


def _add_general(add: Any) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("nvfp4", {"layout": "8x4", "global_scale": "row"}, {"global_scale": "row"}),
        ("nvfp4", {"layout": "128x4", "global_scale": "given"}, {"global_scale": ONE}),
        ("nvfp4", {"global_scale": "tensor"}, {"global_scale": "tensor"}),
        ("nvfp4", {"four_over_six": True}, {}),
        ("mxfp4", {"layout": "linear+8x4", "scale_rounding": "floor"}, {}),
        ("mxfp8", {"layout": "128x4"}, {}),
        ("fp8", {}, {"scale": ONE}),
        ("fp8", {"global_scale": "tensor"}, {"scale": "tensor"}),
        ("fp8_token", {}, {}),
        ("fp8_group", {"layout": "column4"}, {}),
        ("fp8_group_ue8m0", {}, {}),
    ]
    for quant, choices, given in cases:
        fields = {("scale_layout" if name == "layout" else name): value for name, value in choices.items()}
        fields.pop("global_scale", None)
        spec = replace(read_format(quant), **fields)
        chosen = {"hidden_size": 4096, "quant": quant, **choices}
        _add_general_case(add, spec, chosen, given)
        if choices.get("global_scale") != "tensor":
            text = str(replace(spec, global_scale=choices.get("global_scale", "none")))
            add("quantize", {"hidden_size": 4096, "quant": text},
                lambda m, s=spec, g=given: jitnorm.quantize(rows(m, 4096), spec=s, **g))  # fmt: skip
    bounded = read_format("fp8_token")
    add("quantize", {"hidden_size": 256, "quant": "fp8_token", "scale_ub": True, "input": "float32"},
        lambda m: jitnorm.quantize(rows(m, 256, "float32"), spec=bounded, scale_ub=ONE))  # fmt: skip
    add("quantize", {"hidden_size": 256, "quant": "nvfp4", "input": "float8_e4m3fn"},
        lambda m: jitnorm.quantize(rows(m, 256, "float8_e4m3fn"), spec=jitnorm.NVFP4))  # fmt: skip
    add("compute_amax", {"hidden_size": 100}, lambda m: jitnorm.compute_amax(rows(m, 100)))
    add("silu_and_mul_quantize", {"hidden_size": 256, "quant": "nvfp4", "gate_columns": 64},
        lambda m: jitnorm.silu_and_mul_quantize(rows(m, 512), spec=jitnorm.NVFP4, granularity=64))  # fmt: skip


def _add_general_case(add: Any, spec: Any, chosen: dict[str, Any], given: dict[str, Any]) -> None:
    add("quantize", chosen, lambda m: jitnorm.quantize(rows(m, 4096), spec=spec, **given))
    add("quantize", {**chosen, "pdl": False},
        lambda m: jitnorm.quantize(rows(m, 4096), spec=spec, enable_pdl=False, **given))  # fmt: skip
    add("silu_and_mul_quantize", chosen,
        lambda m: jitnorm.silu_and_mul_quantize(rows(m, 8192), spec=spec, **given))  # fmt: skip
    add("norm_quantize", chosen,
        lambda m: jitnorm.norm_quantize(rows(m, 4096), weight(4096), spec=spec, **given))  # fmt: skip
    add("norm_quantize", {**chosen, "residual": True, "keep_norm": True, "unit_bias": True},
        lambda m: jitnorm.norm_quantize(
            rows(m, 4096), weight(4096), spec=spec, residual=rows(m, 4096), y_out=rows(m, 4096), unit_bias=True,
            **given))  # fmt: skip
    fields = {name: value for name, value in chosen.items() if name in ("quant", "layout", "global_scale")}
    if not spec.both_layouts:
        add("dequantize", {"hidden_size": 4096, **fields, "input": "float16"},
            lambda m: _decode(rows(m, 4096), spec, given))  # fmt: skip


def _decode(x: Any, spec: Any, given: dict[str, Any]) -> None:
    """Encodes and decodes; only the launch of decoding is the op's."""
    jitnorm.dequantize(jitnorm.quantize(x, spec=spec, **given), dtype="float16")


def _add_quantizers(add: Any) -> None:
    layouts = {"linear": {"is_sf_swizzled_layout": False}, "128x4": {}, "8x4": {"is_sf_8x4_layout": True}}
    for layout, flags in layouts.items():
        add("fp4_quantize", {"hidden_size": 512, "layout": layout},
            lambda m, f=flags: jitnorm.fp4_quantize(rows(m, 512), **f))  # fmt: skip
        add("fp4_quantize", {"hidden_size": 512, "layout": layout, "quant": "mxfp4"},
            lambda m, f=flags: jitnorm.fp4_quantize(
                rows(m, 512), sf_vec_size=32, sf_use_ue8m0=True, **f))  # fmt: skip
        add("silu_and_mul_nvfp4_quantize", {"hidden_size": 512, "layout": layout},
            lambda m, f=flags: jitnorm.silu_and_mul_nvfp4_quantize(rows(m, 1024), ONE, **f))  # fmt: skip
    add("silu_and_mul_nvfp4_quantize", {"hidden_size": 512, "global_scale": "none"},
        lambda m: jitnorm.silu_and_mul_nvfp4_quantize(rows(m, 1024), None))  # fmt: skip
    add("fp4_quantize", {"hidden_size": 512, "global_scale": "given", "inverse_global_scale": True},
        lambda m: jitnorm.fp4_quantize(rows(m, 512), ONE, is_global_scale_inversed=True))  # fmt: skip
    add("nvfp4_quantize", {"hidden_size": 512}, lambda m: jitnorm.nvfp4_quantize(rows(m, 512), ONE))
    add("nvfp4_quantize", {"hidden_size": 512, "four_over_six": True},
        lambda m: jitnorm.nvfp4_quantize(rows(m, 512), ONE, nvfp4_4over6=_FourOverSix()))  # fmt: skip
    add("nvfp4_quantize", {"hidden_size": 512, "quant": "e2m1/32/e4m3"},
        lambda m: jitnorm.nvfp4_quantize(rows(m, 512), ONE, sf_vec_size=32))  # fmt: skip
    add("nvfp4_quantize", {"hidden_size": 512, "shuffled": True},
        lambda m: jitnorm.nvfp4_quantize(rows(128 * m, 512), ONE, do_shuffle=True))  # fmt: skip
    add("nvfp4_quantize", {"hidden_size": 512, "shuffled": True, "global_scale": "row"},
        lambda m: jitnorm.nvfp4_quantize(
            rows(128 * m, 512), None, do_shuffle=True, per_token_activation=True))  # fmt: skip
    add("mxfp4_quantize", {"hidden_size": 512}, lambda m: jitnorm.mxfp4_quantize(rows(m, 512)))
    for alignment in (32, 128):
        add("mxfp8_quantize", {"hidden_size": 96, "alignment": alignment},
            lambda m, a=alignment: jitnorm.mxfp8_quantize(rows(m, 96), alignment=a))  # fmt: skip
    add("mxfp8_quantize", {"hidden_size": 512}, lambda m: jitnorm.mxfp8_quantize(rows(m, 512)))
    add("quantize_weight", {"hidden_size": 100}, lambda m: jitnorm.quantize_weight(rows(32 * m, 100)))
    add("quantize_weight", {"hidden_size": 100, "global_scale": "given"},
        lambda m: jitnorm.quantize_weight(rows(32 * m, 100), global_scale=ONE))  # fmt: skip


def _add_batches(add: Any) -> None:
    scales = {False: ONE, True: np.ones(MATRICES, np.float32)}
    mask = np.ones(MATRICES, np.int32)
    for several, scale in scales.items():
        chosen = {"hidden_size": 512, "scale_per_matrix": several}
        add("nvfp4_batched_quantize", chosen,
            lambda m, s=scale: jitnorm.nvfp4_batched_quantize(rows(m, 512, "bfloat16", MATRICES), s))  # fmt: skip
        add("scaled_fp4_grouped_quantize", chosen,
            lambda m, s=scale: jitnorm.scaled_fp4_grouped_quantize(
                rows(m, 512, "bfloat16", MATRICES), mask, s))  # fmt: skip
        add("silu_and_mul_scaled_nvfp4_experts_quantize", chosen,
            lambda m, s=scale: jitnorm.silu_and_mul_scaled_nvfp4_experts_quantize(
                rows(m, 1024, "bfloat16", MATRICES), mask, s))  # fmt: skip
    add("quantize", {"hidden_size": 512, "quant": "mxfp8", "batched": True, "masked": True},
        lambda m: jitnorm.quantize(
            rows(m, 512, "bfloat16", MATRICES), spec=jitnorm.MXFP8, batched=True, mask=mask))  # fmt: skip


def _add_decoders_and_moves(add: Any) -> None:
    codes, scales = (lambda m: np.zeros((m, 64), np.uint8)), (lambda m, n: np.zeros((-(-m // 128) * 128, n), np.uint8))
    add("e2m1_and_ufp8sf_scale_to_float", {"hidden_size": 128},
        lambda m: jitnorm.e2m1_and_ufp8sf_scale_to_float(codes(m), scales(m, 8)))  # fmt: skip
    add("e2m1_and_ufp8sf_scale_to_float", {"hidden_size": 128, "tensor_scale": True},
        lambda m: jitnorm.e2m1_and_ufp8sf_scale_to_float(codes(m), scales(m, 8), ONE))  # fmt: skip
    add("mxfp4_dequantize", {"hidden_size": 128}, lambda m: jitnorm.mxfp4_dequantize(codes(m), scales(m, 4)))
    add("mxfp8_dequantize_host", {"hidden_size": 64},
        lambda m: jitnorm.mxfp8_dequantize_host(codes(m), scales(m, 4)))  # fmt: skip
    for name in ("block_scale_interleave", "interleave"):
        for size in (64, 6):
            add(name, {"hidden_size": size},
                lambda m, size=size: jitnorm.block_scale_interleave(rows(m, size, "uint8")))  # fmt: skip
        add(name, {"hidden_size": 64, "batched": True},
            lambda m: jitnorm.block_scale_interleave(rows(m, 64, "uint8", MATRICES)))  # fmt: skip
    for name in ("shuffle_matrix_a", "shuffle"):
        for tile, block in ((128, 32), (64, 16)):
            for size, dtype in ((100, "uint8"), (100, "bfloat16")):
                add(name, {"hidden_size": size, "shuffle_rows": block, "input": dtype},
                    lambda m, t=tile, s=size, d=dtype: jitnorm.shuffle_matrix_a(rows(32 * m, s, d), t))  # fmt: skip
    add("shuffle_matrix_sf_a", {"hidden_size": 64},
        lambda m: jitnorm.shuffle_matrix_sf_a(rows(128 * m, 64, "uint8"), 128))  # fmt: skip
