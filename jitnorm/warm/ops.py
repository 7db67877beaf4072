"""The ops that a specification can name: which launches a call of each makes, by the choices of its caller.

What `jitnorm/ops/` passes to its dispatchers is said here a second time, because there it depends on tensors;
tests/jitnorm/warm/test_expand.py makes the calls and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jitnorm.kernels.config_rules import INPUT_DTYPES
from jitnorm.kernels.quant_spec import MXFP4, MXFP8, NVFP4, QuantSpec
from jitnorm.kernels.row_classes import ROW_CLASSES
from jitnorm.warm.formats import FORMATS, read_format

Choices = Mapping[str, Any]


@dataclass(frozen=True)
class Launch:
    """A launch of an op.

    Attributes:
        options: the fields of KernelConfig that the op fixes, as its dispatcher has them.
        hidden_size: elements of a row.
        input: dtype of the first tensor.
        weight: dtype of the weight; empty for the input's, or none.
        enable_pdl: as of the op.
        row_dims: how many strides the rows need.
    """

    options: Mapping[str, Any]
    hidden_size: int
    input: str
    weight: str = ""
    enable_pdl: bool | None = None
    row_dims: int = 1


@dataclass(frozen=True)
class Op:
    """An op that can be named.

    Attributes:
        fixed: fields of KernelConfig that it always has.
        choices: what its caller chooses, by name, with what a call that leaves it out has.
        formats: the encodings it has, by element, block size and scale format; empty if it has none or any.
        layouts: the layouts of scales it has; empty for any.
        global_scales: the kinds of global scale it has; empty for any.
        also: further launches of a call, by its choices and the first launch.
    """

    fixed: Mapping[str, Any]
    choices: Mapping[str, Any] = field(default_factory=dict)
    formats: tuple[QuantSpec, ...] = ()
    layouts: tuple[str, ...] = ()
    global_scales: tuple[str, ...] = ()
    also: Callable[[Choices, Launch], list[Launch]] | None = None


# What every op has; `weight` and `quant` only some.
_COMMON: dict[str, Any] = {"hidden_size": None, "input": "bfloat16", "row_dims": 1, "pdl": None, "calls": "all"}
# What of an encoding can be chosen beside its format.
_ENCODING = ("layout", "global_scale", "scale_rounding", "four_over_six")
_NOT_FIELDS = {*_COMMON, *_ENCODING, "weight", "shuffled"}

_FP4 = (NVFP4, MXFP4, replace(NVFP4, block_size=32), replace(MXFP4, block_size=16))
_FP8 = (FORMATS["fp8"], FORMATS["fp8_e5m2"])
_ONE_OR_BOTH = ("linear", "128x4", "linear+128x4")
_ONE = ("linear", "128x4", "8x4")
_NORM: dict[str, Any] = {"weight": ""}
_BATCH: dict[str, Any] = {"batched": False, "masked": False, "scale_per_matrix": False}
_ANY_ENCODING: dict[str, Any] = {
    "quant": None, "layout": None, "global_scale": None, "scale_rounding": None, "four_over_six": None,
}  # fmt: skip
_FOUR_OVER_SIX: dict[str, Any] = {"four_over_six": False}


def _norm(choices: Choices | None = None, **fixed: Any) -> Op:
    return Op({"op": "rmsnorm", **fixed}, {**_NORM, **(choices or {})})


def _fp4_norm(choices: Choices, **fixed: Any) -> Op:
    encoding = {"quant": "nvfp4", "layout": "linear", "global_scale": "none"}
    return Op({"op": "rmsnorm", **fixed}, {**_NORM, **encoding, **choices}, _FP4, _ONE_OR_BOTH, ("none", "given"))


def _mxfp8_norm(choices: Choices, **fixed: Any) -> Op:
    return Op({"op": "rmsnorm", **fixed}, {**_NORM, "quant": "mxfp8", "layout": "linear", **choices}, (MXFP8,),
              _ONE_OR_BOTH, ("none",))  # fmt: skip


def _fp8_norm(**fixed: Any) -> Op:
    return Op({"op": "rmsnorm", **fixed}, {**_NORM, "quant": "fp8"}, _FP8, ("linear",), ("none",))


def _quantize(quant: str, choices: Choices, formats: tuple[QuantSpec, ...], layouts: tuple[str, ...],
              global_scales: tuple[str, ...], **fixed: Any) -> Op:  # fmt: skip
    return Op({"op": "quantize", **fixed}, {"quant": quant, **choices}, formats, layouts, global_scales)


def _dequantize(quant: str, formats: tuple[QuantSpec, ...], choices: Choices | None = None) -> Op:
    every = {"quant": quant, "layout": "128x4", "input": "float32", **(choices or {})}
    return Op({"op": "dequantize"}, every, formats, _ONE, ("none",))


def _amax_of(choices: Choices, launch: Launch) -> list[Launch]:
    """The launch before, which finds the largest magnitude, if a scale is found for the whole tensor."""
    quant = launch.options.get("quant")
    if quant is None or not quant.needs_tensor_amax:
        return []
    kept = ("op", "residual", "unit_bias") if launch.options["op"] == "rmsnorm" else ("op", "gate_columns")
    options = {name: launch.options[name] for name in kept if name in launch.options}
    # quantize calls compute_amax, which has no enable_pdl.
    enable_pdl = launch.enable_pdl if choices.get("gate_columns") or options["op"] == "rmsnorm" else None
    return [replace(launch, options={**options, "amax_only": True}, enable_pdl=enable_pdl)]


def _shuffles(choices: Choices, launch: Launch) -> list[Launch]:
    """The launches after, if the rows are permuted for the epilogue of a GEMM."""
    if not choices["shuffled"]:
        return []
    block = launch.options["quant"].block_size
    is_by_row = launch.options["quant"].global_scale == "row"
    bytes_of_codes, scales = launch.hidden_size // 2, launch.hidden_size // block
    moved = [(bytes_of_codes, "uint8"), (scales, "uint8"), *([(1, "float32")] if is_by_row else [])]
    return [*(_shuffle(size, dtype, 32) for size, dtype in moved), _interleave(scales, "uint8")]


def _shuffle(size: int, dtype: str, rows: int) -> Launch:
    return Launch({"op": "shuffle", "shuffle_rows": rows}, size, dtype)


def _interleave(size: int, dtype: str) -> Launch:
    return Launch({"op": "interleave", "batched": False}, size, dtype)


def _interleave_shuffled(_: Choices, launch: Launch) -> list[Launch]:
    return [_interleave(launch.hidden_size, launch.input)]


_KEEP_NORM = {"keep_norm": False}
_GROUPED: dict[str, Any] = {
    "quant": "nvfp4", "layout": "128x4", "global_scale": "given", "scale_per_matrix": False, **_FOUR_OVER_SIX,
}  # fmt: skip
_GIVEN_OR_NOT = ("none", "given")

OPS: dict[str, Op] = {
    # Those of KernelConfig, with all that they can.
    "rmsnorm": Op(
        {"op": "rmsnorm"},
        {**_NORM, **_ANY_ENCODING, **_BATCH, "residual": False, "unit_bias": False, "keep_norm": False,
         "keep_rstd": False, "gate_columns": 0, "streams": 0, "scale_ub": False, "inverse_global_scale": False,
         "amax_only": False, "pair": False},
        also=_amax_of,
    ),
    "layernorm": Op(
        {"op": "layernorm"},
        {**_ANY_ENCODING, **_BATCH, "residual": False, "keep_norm": False, "keep_rstd": False, "gate_columns": 0,
         "streams": 0, "scale_ub": False, "inverse_global_scale": False, "amax_only": False},
    ),
    "quantize": Op(
        {"op": "quantize"},
        {**_ANY_ENCODING, **_BATCH, "gate_columns": 0, "streams": 0, "scale_ub": False, "inverse_global_scale": False,
         "amax_only": False, "axis": -1, "alignment": 1},
        also=_amax_of,
    ),
    "dequantize": Op(
        {"op": "dequantize"},
        {**_ANY_ENCODING, "batched": False, "scale_per_matrix": False, "axis": -1, "tensor_scale": False},
    ),
    "interleave": Op({"op": "interleave"}, {"input": "uint8", "batched": False}),
    "shuffle": Op({"op": "shuffle"}, {"input": "uint8", "shuffle_rows": 32}),
    # The public functions.
    "gemma_rmsnorm": _norm(unit_bias=True),
    "fused_add_rmsnorm": _norm(residual=True),
    "gemma_fused_add_rmsnorm": _norm(residual=True, unit_bias=True),
    "qk_rmsnorm": _norm({"row_dims": (1, 2)}, pair=True, unit_bias=False),
    "gemma_qk_rmsnorm": _norm({"row_dims": (1, 2)}, pair=True, unit_bias=True),
    "rmsnorm_fp4quant": _fp4_norm({}),
    "add_rmsnorm_fp4quant": _fp4_norm(_KEEP_NORM, residual=True),
    "rmsnorm_mxfp8quant": _mxfp8_norm({}),
    "add_rmsnorm_mxfp8quant": _mxfp8_norm(_KEEP_NORM, residual=True),
    "rmsnorm_quant": _fp8_norm(),
    "gemma_rmsnorm_quant": _fp8_norm(unit_bias=True),
    "fused_add_rmsnorm_quant": _fp8_norm(residual=True),
    "gemma_fused_add_rmsnorm_quant": _fp8_norm(residual=True, unit_bias=True),
    "rms_norm_static_fp8_quant": _fp8_norm(),
    "fused_add_rms_norm_static_fp8_quant": _fp8_norm(residual=True),
    "fused_add_rmsnorm_fp8_block_quant": Op(
        {"op": "rmsnorm", "residual": True}, {**_NORM, "quant": "fp8_group", "layout": "column4", **_KEEP_NORM},
        (FORMATS["fp8_group"],), ("column4",), ("none",),
    ),
    "rms_norm_dynamic_per_token_quant": Op(
        {"op": "rmsnorm"}, {**_NORM, "quant": "fp8_token", "residual": False, "scale_ub": False},
        (FORMATS["fp8_token"], FORMATS["fp8_token_e5m2"]), ("linear",), ("none",),
    ),
    "rms_norm_per_block_quant": Op(
        {"op": "rmsnorm"}, {**_NORM, "quant": "fp8_group", "layout": "linear", "residual": False, "scale_ub": False},
        (FORMATS["fp8_group"], FORMATS["fp8_group64"]), ("linear", "column", "column4"), ("none",),
    ),
    "norm_quantize": Op(
        {"op": "rmsnorm"},
        {**_NORM, **_ANY_ENCODING, **_BATCH, "residual": False, "unit_bias": False, "keep_norm": False,
         "scale_ub": False},
        also=_amax_of,
    ),
    "rmsnorm_quantize": Op(
        {"op": "rmsnorm", "streams": 0, "keep_rstd": True},
        {**_NORM, "quant": "nvfp4", "layout": "linear", "global_scale": "row"}, (NVFP4,), _ONE, ("row",),
    ),
    "mhc_rmsnorm_quantize": Op(
        {"op": "rmsnorm", "keep_rstd": True},
        {**_NORM, "quant": "nvfp4", "layout": "linear", "global_scale": "row", "streams": 4}, (NVFP4,), _ONE, ("row",),
    ),
    "compute_amax": Op({"op": "quantize", "amax_only": True}),
    "fp4_quantize": _quantize(
        "nvfp4", {"layout": "128x4", "global_scale": "none", "inverse_global_scale": False, **_FOUR_OVER_SIX},
        _FP4, _ONE, _GIVEN_OR_NOT,
    ),
    "nvfp4_quantize": replace(
        _quantize(
            "nvfp4", {"layout": "128x4", "global_scale": "given", "shuffled": False, **_FOUR_OVER_SIX},
            _FP4[:3:2], _ONE, (*_GIVEN_OR_NOT, "row"),
        ),
        also=_shuffles,
    ),
    "mxfp4_quantize": _quantize("mxfp4", {"layout": "128x4"}, (MXFP4,), _ONE, ("none",)),
    "mxfp8_quantize": _quantize("mxfp8", {"layout": "128x4", "alignment": 32}, (MXFP8,), _ONE, ("none",)),
    "quantize_weight": _quantize("nvfp4", {"global_scale": "none"}, _FP4, ("linear",), _GIVEN_OR_NOT, axis=0),
    "silu_and_mul_quantize": Op(
        {"op": "quantize"}, {**_ANY_ENCODING, **_BATCH, "gate_columns": -1}, also=_amax_of,
    ),
    "silu_and_mul_nvfp4_quantize": _quantize(
        "nvfp4", {"layout": "128x4", "global_scale": "given", **_FOUR_OVER_SIX},
        _FP4[:3:2], _ONE, _GIVEN_OR_NOT, gate_columns=-1,
    ),
    "nvfp4_batched_quantize": _quantize("nvfp4", _GROUPED, _FP4[:3:2], ("128x4",), _GIVEN_OR_NOT, batched=True),
    "scaled_fp4_grouped_quantize": _quantize(
        "nvfp4", _GROUPED, (NVFP4,), ("128x4",), _GIVEN_OR_NOT, batched=True, masked=True,
    ),
    "silu_and_mul_scaled_nvfp4_experts_quantize": _quantize(
        "nvfp4", _GROUPED, (NVFP4,), ("128x4",), _GIVEN_OR_NOT, batched=True, masked=True, gate_columns=-1,
    ),
    "e2m1_and_ufp8sf_scale_to_float": _dequantize("nvfp4", _FP4, {"tensor_scale": False}),
    "mxfp4_dequantize": _dequantize("mxfp4", (MXFP4,)),
    "mxfp8_dequantize_host": _dequantize("mxfp8", (MXFP8,)),
    "block_scale_interleave": Op({"op": "interleave"}, {"input": "uint8", "batched": False}),
    "shuffle_matrix_a": Op({"op": "shuffle"}, {"input": "uint8", "shuffle_rows": 32}),
    "shuffle_matrix_sf_a": Op({"op": "shuffle"}, {"input": "uint8", "shuffle_rows": 32}, also=_interleave_shuffled),
}  # fmt: skip
# The classes of calls that are meant by the choice "calls".
CALLS = {"all": ROW_CLASSES, "few": ("few", "some", "usual"), "many": ("many",)}


def op_of(name: str) -> Op:
    """The op of a name; ValueError if there is none."""
    if name not in OPS:
        raise ValueError(f"op: is {name!r}; allowed are {', '.join(OPS)}")
    return OPS[name]


def choices_of(op: Op) -> dict[str, Any]:
    """What can be chosen, with what a call that leaves it out has."""
    return {**_COMMON, **op.choices}


def launches(name: str, chosen: Choices) -> list[Launch]:
    """The launches that a call of an op makes.

    Args:
        name: of the op.
        chosen: one value for each of its choices that is not left out.

    Raises:
        ValueError: a choice that the op does not have, or a value that is not allowed.
    """
    op = op_of(name)
    allowed = choices_of(op)
    unknown = [choice for choice in chosen if choice not in allowed]
    if unknown:
        raise ValueError(f"{unknown[0]}: is given, but {name} has no such choice; it has {', '.join(allowed)}")
    choices = {**allowed, **chosen}
    if choices["hidden_size"] is None:
        raise ValueError(f"hidden_size: is not given for {name}; name the elements of a row")
    options = {**op.fixed, **{field: choices[field] for field in op.choices if field not in _NOT_FIELDS}}
    if "quant" in choices:
        options["quant"] = None if choices["quant"] in (None, "none") else _encoding(name, op, choices)
    if op.fixed["op"] == "dequantize":
        options |= {"input": choices["input"], **_decoded(options["quant"])}
    dims = choices["row_dims"]
    firsts = [
        Launch(
            _as_called(name, choices, options), choices["hidden_size"], choices["input"], choices.get("weight", ""),
            choices["pdl"], row_dims,
        )
        for row_dims in (dims if isinstance(dims, tuple) else (dims,))
    ]  # fmt: skip
    return firsts + [further for first in firsts if op.also for further in op.also(choices, first)]


def _encoding(name: str, op: Op, choices: Choices) -> QuantSpec:
    """The encoding that is chosen, if the op has it."""
    quant = read_format(choices["quant"])
    base = replace(quant, scale_layout="linear", global_scale="none", scale_rounding="up", four_over_six=False)
    if op.formats and base not in op.formats:
        raise ValueError(f"quant: is {choices['quant']!r}; {name} has {', '.join(map(str, op.formats))}")
    spells_all = choices["quant"] not in FORMATS and choices["quant"].count("/") >= 3
    changes = {} if spells_all else {_FIELD_OF[c]: choices[c] for c in _ENCODING if choices.get(c) is not None}
    quant = replace(quant, **changes)
    for field_, value, values in (
        ("layout", quant.scale_layout, op.layouts),
        ("global_scale", quant.global_scale, op.global_scales),
    ):
        if values and value not in values:
            raise ValueError(f"{field_}: is {value!r}; {name} has {', '.join(values)}")
    return quant


_FIELD_OF = {
    "layout": "scale_layout",
    "global_scale": "global_scale",
    "scale_rounding": "scale_rounding",
    "four_over_six": "four_over_six",
}


def _decoded(quant: QuantSpec | None) -> dict[str, Any]:
    """What decoding has to know of an encoding, as `jitnorm.dequantize` has it."""
    if quant is None:
        raise ValueError("quant: is not given for dequantize; name the encoding that is decoded")
    decoded = replace(
        quant,
        scale_layout="linear" if quant.both_layouts else quant.scale_layout,
        global_scale="none" if quant.needs_tensor_amax else quant.global_scale,
        scale_rounding="up",
        four_over_six=False,
    )
    has_tensor_scale = quant.has_blocks and quant.needs_tensor_amax
    return {"quant": decoded, **({"tensor_scale": True} if has_tensor_scale else {})}


def _as_called(name: str, choices: Choices, options: dict[str, Any]) -> dict[str, Any]:
    """The options as the op passes them on."""
    if choices.get("shuffled"):
        if options["quant"].scale_layout != "128x4":
            raise ValueError(f"layout: is {options['quant'].scale_layout!r}; {name} shuffles with 128x4 alone")
        return {**options, "quant": options["quant"].with_layout("linear")}
    if choices["input"] not in INPUT_DTYPES and options["op"] not in ("interleave", "shuffle"):
        raise ValueError(f"input: is {choices['input']!r}; allowed are {', '.join(INPUT_DTYPES)}")
    return options
