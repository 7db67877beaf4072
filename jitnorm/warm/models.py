"""Derives the entries that a language model needs from its dimensions and number formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from jitnorm.catalogue.op import WITHOUT_WEIGHT
from jitnorm.kernels.formats import read_format
from jitnorm.kernels.quant_spec import require_one_of
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.warm.entry import Entry, multiply

MODEL_FORMATS = ("nvfp4", "mxfp4", "mxfp8", "fp8", "fp8_token", "fp8_group", "int8", "int8_token")


@dataclass(frozen=True)
class Model:
    """The dimensions of a language model that kernels depend on.

    Attributes:
        name: its name.
        hidden_size: elements of the residual stream.
        head_sizes: of heads whose queries and keys are normalized.
        head_weight: whether these norms have weights.
        turned_sizes: of heads whose queries and keys are rotated without a norm.
        rotary_factor: the fraction of a head that is rotated.
        gated_sizes: of heads whose norm is multiplied by the SiLU of gates, as in Gated DeltaNet.
        norm_sizes: of further norms, such as those of low-rank projections.
        latent_sizes: of MLA's two latents, which are normalized together: of queries, of keys and values.
        streams: the number of residual streams of hyper-connections (mHC); 0 without them.
        gate_sizes: intermediate sizes whose activation is gated.
        expert_sizes: those of routed experts, which are also quantized as masked batches.
        experts: the number of routed experts, whose rows are also quantized expert by expert; several numbers if
            models differ only in this.
        gemm_sizes: of inputs of matrix products that are quantized separately, such as the output of attention.
        activation: of the gates, as in KernelConfig; with ``swigluoai``, gates and values alternate.
        unit_bias: whether 1 is added to the weights of norms, as Gemma does.
        rounding: of norms, as in `jitnorm.norm_quantize`.
        dtype: of activations and weights of norms.
        formats: encodings of its quantized activations, from `MODEL_FORMATS`.
        left_out: parts of the model without a kernel, to be reported to the user.
    """

    name: str
    hidden_size: int
    head_sizes: tuple[int, ...] = ()
    head_weight: bool = True
    turned_sizes: tuple[int, ...] = ()
    rotary_factor: float = 1.0
    gated_sizes: tuple[int, ...] = ()
    norm_sizes: tuple[int, ...] = ()
    latent_sizes: tuple[int, ...] = ()
    streams: int = 0
    gate_sizes: tuple[int, ...] = ()
    expert_sizes: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()
    gemm_sizes: tuple[int, ...] = ()
    activation: str = "silu"
    unit_bias: bool = False
    rounding: str = "once"
    dtype: str = "bfloat16"
    formats: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def read_model(table: dict[str, Any]) -> Model:
    """Read a model from a table of a specification; ValueError if something is wrong with it."""
    known = {field.name for field in fields(Model)} - {"left_out"}
    for name in table:
        if name not in known:
            raise ValueError(f"model: has {name!r}; allowed are {', '.join(sorted(known))}")
    for name in ("name", "hidden_size"):
        if name not in table:
            raise ValueError(f"model: {table.get('name', 'one')!r} has no {name}; add it")
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    if "activation" in values:
        require_one_of(f"activation of {table['name']}", values["activation"], tuple(_GATES))
    if len(values.get("latent_sizes", ())) not in (0, 2):
        raise ValueError(f"latent_sizes of {table['name']}: is {table['latent_sizes']!r}; expected two, as [1536, 512]")
    return Model(**values)


def entries_of(
    model: Model,
    formats: Sequence[str] | None = None,
    *,
    row_class: str | Sequence[str] = "all",
    tensor_parallel: Sequence[int] = (1,),
) -> list[Entry]:
    """The entries of a model: its norms and its activation without quantization, and what each format adds.

    Args:
        model: its dimensions.
        formats: encodings in place of the model's own; empty for none.
        row_class: one or several classes of rows, as in `configs_of`.
        tensor_parallel: the number of GPUs that share intermediate sizes and heads; sizes that it does not divide are
            skipped.

    Raises:
        ValueError: a format is not known.
    """
    common: dict[str, Any] = {"input": model.dtype, "row_class": row_class}
    gemma, norms = "gemma_" if model.unit_bias else "", {**common, **_rounding(model)}
    found = multiply((f"{gemma}rmsnorm", f"{gemma}fused_add_rmsnorm"), {"hidden_size": model.hidden_size, **norms})
    if model.norm_sizes:
        found += multiply(f"{gemma}rmsnorm", {"hidden_size": model.norm_sizes, **norms})
    if model.head_sizes:
        weight = {} if model.head_weight else WITHOUT_WEIGHT
        found += multiply(f"{gemma}qk_rmsnorm", {"hidden_size": model.head_sizes, **weight, **norms})
    found += _turned(model, norms)
    if model.latent_sizes:
        of_q, of_kv = model.latent_sizes
        found += multiply("q_kv_rmsnorm", {"hidden_size": of_q, "second_size": of_kv, **norms})
    if model.streams:
        connections = {"hidden_size": model.hidden_size, "streams": model.streams, **common}
        found += multiply(("mhc_pre", "mhc_pre_with_prenorm", "mhc_post"), connections)
    if model.gated_sizes:
        found += multiply("rmsnorm_gated", {"hidden_size": model.gated_sizes, **norms})
    if gated := _divided((*model.gate_sizes, *model.expert_sizes), tensor_parallel):
        found += multiply(_GATES[model.activation], {"hidden_size": gated, **common})
    for name in _formats(model, formats):
        found += _quantized(model, name, tensor_parallel, common)
    return list(dict.fromkeys(found))


def left_out_of(
    model: Model, formats: Sequence[str] | None = None, *, tensor_parallel: Sequence[int] = (1,)
) -> list[str]:
    """The parts of a model for which `entries_of` has no entries, given the same arguments, one line each."""
    found = list(model.left_out)
    chosen = _formats(model, formats)
    alone = model.gemm_sizes if chosen else ()
    inner = dict.fromkeys((*alone, *model.gate_sizes, *model.expert_sizes))
    for parts in tensor_parallel:
        if undivided := [size for size in inner if size % parts]:
            found.append(f"rows of {_listed(undivided)} divided by {parts}, which leaves a remainder")
    divided = [size // parts for size in inner for parts in tensor_parallel if size % parts == 0]
    for name in chosen:
        block = _block_size(name)
        if odd := [size for size in dict.fromkeys((model.hidden_size, *divided)) if size % block]:
            found.append(f"{name} of rows of {_listed(odd)}, which are not whole blocks of {block}")
    return [f"{model.name}: {what}" for what in found]


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _formats(model: Model, formats: Sequence[str] | None) -> Sequence[str]:
    """The encodings to use for a model; ValueError if one is not known."""
    chosen = model.formats if formats is None else formats
    for name in chosen:
        if name not in MODEL_FORMATS:
            meant = did_you_mean(name, MODEL_FORMATS)
            raise ValueError(f"formats: has {name!r}; allowed are {', '.join(MODEL_FORMATS)}{meant}")
    return chosen


def _block_size(name: str) -> int:
    """Elements that share a scale in a format; 1 if a row or tensor shares one."""
    block_size = read_format(_ENCODINGS[name]["quant"]).block_size
    return block_size if isinstance(block_size, int) else 1


# The function of each activation of gates.
_GATES = {
    "silu": "silu_and_mul",
    "gelu": "gelu_and_mul",
    "gelu_tanh": "gelu_tanh_and_mul",
    "swigluoai": "swigluoai_and_mul",
}
# How each format is asked for: its layout of scales is the one that GEMMs read.
_ENCODINGS: dict[str, dict[str, Any]] = {
    "nvfp4": {"quant": "nvfp4", "layout": "128x4", "global_scale": "given"},
    "mxfp4": {"quant": "mxfp4", "layout": "128x4"},
    "mxfp8": {"quant": "mxfp8", "layout": "128x4"},
    "fp8": {"quant": "fp8"},
    "fp8_token": {"quant": "fp8_token"},
    "fp8_group": {"quant": "fp8_group", "layout": ["linear", "column4"]},
    "int8": {"quant": "int8"},
    "int8_token": {"quant": "int8_token"},
}
# The roundings of gates before they are encoded: jitnorm's, and that of vLLM's and FlashInfer's functions.
_GATE_ROUNDINGS = {
    "nvfp4": ["once", "output"],
    "mxfp4": ["once", "output"],
    "mxfp8": ["once", "output"],
    "fp8": ["once", "hf"],
}
# The formats that grouped GEMMs read with the rows of experts one after another.
_GROUPED_FORMATS = ("nvfp4", "mxfp4", "mxfp8")


def _quantized(model: Model, name: str, tensor_parallel: Sequence[int], common: dict[str, Any]) -> list[Entry]:
    """The entries that a format adds; sizes that are not whole blocks have no such kernels."""
    encoding = {**_ENCODINGS[name], **common}
    block = _block_size(name)

    def divided(*sizes: int) -> list[int]:
        return _divided(sizes, tensor_parallel, block)

    found: list[Entry] = []
    if model.hidden_size % block == 0:
        found += _norms(model, {"hidden_size": model.hidden_size, **encoding})
    if sizes := divided(*model.gemm_sizes):
        found += multiply("quantize", {"hidden_size": sizes, **encoding})
        if name == "mxfp8":  # another configuration: it rounds rows up to 32
            found += multiply("mxfp8_quantize", {"hidden_size": sizes, **encoding})
    if name == "mxfp8" and model.expert_sizes:
        found += multiply("mxfp8_grouped_quantize", {"hidden_size": model.hidden_size, **common})
    if sizes := divided(*model.gate_sizes, *model.expert_sizes):
        found += multiply("silu_and_mul_quantize", {"hidden_size": sizes, **encoding, **_gates(model, name)})
    if name == "nvfp4" and model.expert_sizes:
        grouped = {"scale_per_matrix": [False, True], **common}
        found += multiply("scaled_fp4_grouped_quantize", {"hidden_size": model.hidden_size, **grouped})
        sizes = divided(*model.expert_sizes)
        if model.activation == "silu":
            gated = {"hidden_size": sizes, **grouped, **_gates(model, name)}
            found += multiply("silu_and_mul_scaled_nvfp4_experts_quantize", gated)
        else:
            masked = {"batched": True, "masked": True, **encoding, **grouped, **_gates(model, name)}
            found += multiply("silu_and_mul_quantize", {"hidden_size": sizes, **masked})
    if name in _GROUPED_FORMATS and model.experts:
        grouped = {"experts": _divided(model.experts, tensor_parallel), **encoding}
        if name == "nvfp4":
            grouped["scale_per_matrix"] = True
        if name == "mxfp4":
            grouped["scale_rounding"] = ["up", "even"]  # jitnorm's, and that of vLLM's functions
        if model.hidden_size % block == 0:
            found += multiply("grouped_quantize", {"hidden_size": model.hidden_size, **grouped})
        if sizes := divided(*model.expert_sizes):
            found += multiply("silu_and_mul_grouped_quantize", {"hidden_size": sizes, **grouped, **_gates(model, name)})
    return found


def _turned(model: Model, norms: dict[str, Any]) -> list[Entry]:
    """The entries of rotations of heads, with and without their norms."""
    alone = {"input": norms["input"], "row_class": norms["row_class"]}
    with_norm = {**norms, "unit_bias": model.unit_bias}
    return [
        *_rotations("qk_rmsnorm_rope", model, model.head_sizes, with_norm),
        *_rotations("rope", model, model.turned_sizes, alone),
    ]


def _rotations(op: str, model: Model, sizes: Sequence[int], common: dict[str, Any]) -> list[Entry]:
    """The entries of an op and of its inserting form; engines keep the angles in the model's dtype or in float32."""
    angles = tuple(dict.fromkeys((model.dtype, "float32")))
    found: list[Entry] = []
    for size in sizes:
        rotary_size = int(size * model.rotary_factor)
        if rotary_size >= 2 and rotary_size % 2 == 0:
            choices = {**common, "hidden_size": size, "rotary_size": rotary_size, "angles": angles}
            found += multiply(op, choices)
            inserting = {**choices, "row_dims": 2, "keep_heads": [False, True]}
            for name in (f"{op}_cache", f"{op}_cache_quant"):
                found += multiply(name, inserting)
    return found


def _rounding(model: Model) -> dict[str, str]:
    """The rounding of a model's norms, if it is not the default."""
    return {} if model.rounding == "once" else {"rounding": model.rounding}


def _divided(sizes: Sequence[int], tensor_parallel: Sequence[int], block: int = 1) -> list[int]:
    """The sizes that, divided among GPUs, are whole blocks."""
    parts = (size // parts for size in sizes for parts in tensor_parallel if size % parts == 0)
    return [size for size in dict.fromkeys(parts) if size % block == 0]


def _gates(model: Model, name: str) -> dict[str, Any]:
    """The choices of `silu_and_mul_quantize` for the activation of a model's gates in a format."""
    rounded = {"rounding": _GATE_ROUNDINGS[name]} if name in _GATE_ROUNDINGS else {}
    if model.activation == "silu":
        return rounded
    turns = {"gate_columns": 1} if model.activation == "swigluoai" else {}
    return {"activation": model.activation, **turns, **rounded}


def _norms(model: Model, choices: dict[str, Any]) -> list[Entry]:
    """The norms of the residual stream, without and with a residual; a router of experts reads the norm itself."""
    shared = {"unit_bias": model.unit_bias, **_rounding(model), **choices}
    keeps = [False, True] if model.expert_sizes else False
    return [
        *multiply("norm_quantize", {**shared, "residual": False}),
        *multiply("norm_quantize", {**shared, "residual": True, "keep_norm": keeps}),
    ]
