"""Reads models from the configuration files of Hugging Face checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jitnorm.hub import hint_of_hub
from jitnorm.kernels.config_rules import FLOAT_DTYPES
from jitnorm.warm.models import Model

_NESTED = ("text_config", "thinker_config", "language_config", "llm_config")
# Models whose norms multiply by weight + 1; Gemma 3n and later multiply by the weight.
_UNIT_BIAS = ("gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe")
# Models that normalize queries and keys per head without a field that says so.
_QK_NORM = (
    "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
    "gemma3", "gemma3_text",
)  # fmt: skip
# Models that normalize queries and keys without a weight.
_UNWEIGHTED_QK_NORM = ("llama4", "llama4_text")
# Activations of gates, by name. GELU is gated only in some models, and gpt-oss clamps its gates without a field that
# says so.
_SWIGLU = {"silu": "silu", "swish": "silu"}
_GEGLU = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
_GEGLU_MODELS = ("gemma", "gemma2", "gemma3", "gemma3_text")
_CLAMPED_MODELS = ("gpt_oss",)
# Of ModelOpt.
_ALGORITHMS = {
    "NVFP4": ("nvfp4",),
    "MXFP8": ("mxfp8",),
    "FP8": ("fp8",),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_token",),
    "FP8_PB_WO": ("fp8_group",),
    "W4A8_MXFP4_FP8": ("fp8",),
}


def load_model(path: Path) -> Model:
    """Read the model of a ``config.json`` or of its folder.

    Also reads ``hf_quant_config.json``, which NVIDIA's ModelOpt writes next to it.

    Raises:
        ValueError: it cannot be read, or lacks required fields.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _read_object(file)
    beside = file.with_name("hf_quant_config.json")
    if "quantization_config" not in config and beside.exists():
        config = {**config, "quantization_config": _read_object(beside).get("quantization", {})}
    try:
        return model_of(config, file.parent.name or str(file))
    except ValueError as error:
        raise ValueError(f"model: {file}: {error}") from None


def _read_object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remedy = f"name a config.json or its folder{hint_of_hub(str(file))}"
        raise ValueError(f"model: cannot read {file}: {error}; {remedy}") from None
    if not isinstance(found, dict):
        raise ValueError(f"model: {file} is not a JSON object; name a config.json or its folder")
    return found


def model_of(config: Mapping[str, Any], name: str) -> Model:
    """The model of a configuration.

    Args:
        config: the JSON object; for multimodal models, the language model's part is used.
        name: the name of the model.

    Raises:
        ValueError: it has no hidden size.

    Example:
        >>> model_of({"model_type": "qwen3", "hidden_size": 4096, "head_dim": 128}, "mine").head_sizes
        (128,)
    """
    text = _text_part(config)
    hidden_size = _int(text, "hidden_size")
    if not hidden_size:
        raise ValueError(
            f"has no hidden_size, not even in {', '.join(_NESTED)}; add it, or write a specification: --spec"
        )
    kind = str(text.get("model_type") or config.get("model_type") or "")
    heads = _int(text, "num_attention_heads")
    head_size = _int(text, "head_dim") or (hidden_size // heads if heads else 0)
    gates = _gates(text, kind)
    quantization = text.get("quantization_config") or config.get("quantization_config") or {}
    dense, experts = _dense_sizes(text), _expert_sizes(text)
    attention = heads * (_int(text, "v_head_dim") or head_size)
    alone = (attention,) if kind != "deepseek_v4" else ()  # a grouped projection follows there
    of_q, of_kv = _int(text, "q_lora_rank"), _int(text, "kv_lora_rank") or (head_size if kind == "deepseek_v4" else 0)
    return Model(
        name,
        hidden_size,
        head_sizes=(head_size,) if head_size and _normalizes_heads(text, kind) else (),
        head_weight=kind not in _UNWEIGHTED_QK_NORM,
        turned_sizes=(head_size,) if head_size and _turns_heads_alone(text, kind) else (),
        gated_sizes=_positive(_int(text, "linear_value_head_dim")),
        rotary_factor=_rotary_factor(text),
        norm_sizes=_positive(of_q, of_kv),
        latent_sizes=(of_q, of_kv) if of_q and of_kv else (),
        streams=_int(text, "hc_mult") if kind == "deepseek_v4" else 0,
        gate_sizes=dense if gates else (),
        expert_sizes=experts if gates else (),
        experts=_experts(text) if experts and gates else (),
        gemm_sizes=_positive(*alone, *(() if gates else dense + experts)),
        activation=gates or "silu",
        unit_bias=kind in _UNIT_BIAS,
        dtype=_dtype(text, config),
        formats=formats_of(quantization),
        left_out=(*_left_out(text, gates), *_unknown_formats(quantization)),
    )


def _left_out(text: Mapping[str, Any], gates: str) -> tuple[str, ...]:
    """The parts of the model without a kernel."""
    if gates:
        return ()
    return (f"its activation, {_activation(text)}, which is not a known gate: only its output is quantized",)


def _unknown_formats(quantization: Mapping[str, Any]) -> tuple[str, ...]:
    """Encodings of activations without a kernel."""
    algorithm = str(quantization.get("quant_algo") or "").upper()
    if algorithm and algorithm not in _ALGORITHMS:
        return (f"its quantization, {algorithm}, whose format of activations is unknown",)
    asked = [group["input_activations"] for group in _groups(quantization) if group.get("input_activations")]
    unknown = [each for each in asked if not _compressed({"input_activations": each})]
    return tuple(
        f"its activations in {each.get('type')}{each.get('num_bits')}, one scale per {each.get('strategy')}"
        for each in unknown
    )


def _groups(quantization: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The quantization groups of compressed-tensors."""
    groups = (quantization.get("config_groups") or {}).values()
    return [group for group in groups if isinstance(group, Mapping)]


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration, at any depth."""
    for name in _NESTED:
        if isinstance(config.get(name), Mapping):
            return _text_part(config[name])
    return config


def _int(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _positive(*sizes: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(size for size in sizes if size > 0))


def _activation(text: Mapping[str, Any]) -> str:
    return str(text.get("hidden_act") or text.get("hidden_activation") or "silu")


def _gates(text: Mapping[str, Any], kind: str) -> str:
    """The activation of the model's gates, as in KernelConfig; empty if none is known."""
    if kind in _CLAMPED_MODELS:
        return "swigluoai"
    known = {**_SWIGLU, **(_GEGLU if kind in _GEGLU_MODELS else {})}
    return known.get(_activation(text), "")


def _dense_sizes(text: Mapping[str, Any]) -> tuple[int, ...]:
    """Intermediate sizes of layers that every token passes through, including shared experts."""
    shared = _int(text, "n_shared_experts") * _int(text, "moe_intermediate_size")
    names = ("intermediate_size", "intermediate_size_mlp", "shared_expert_intermediate_size")
    return _positive(*(_int(text, name) for name in names), shared)


def _expert_sizes(text: Mapping[str, Any]) -> tuple[int, ...]:
    """Intermediate sizes of routed experts; the general intermediate size if they have no field."""
    if size := _int(text, "moe_intermediate_size"):
        return (size,)
    has_experts = _int(text, "num_local_experts") > 1 or _int(text, "num_experts") > 1
    return _positive(_int(text, "intermediate_size")) if has_experts else ()


def _experts(text: Mapping[str, Any]) -> tuple[int, ...]:
    """The number of routed experts."""
    return _positive(max(_int(text, name) for name in ("n_routed_experts", "num_local_experts", "num_experts")))


def _normalizes_heads(text: Mapping[str, Any], kind: str) -> bool:
    return kind in _QK_NORM or bool(text.get("use_qk_norm") or text.get("qk_layernorm"))


def _turns_heads_alone(text: Mapping[str, Any], kind: str) -> bool:
    """Whether whole heads are rotated without a norm; not in MLA, which rotates separate parts."""
    has_rope = any(text.get(name) for name in ("rope_theta", "rope_parameters", "rope_scaling"))
    return has_rope and not _normalizes_heads(text, kind) and not _int(text, "qk_rope_head_dim")


def _rotary_factor(text: Mapping[str, Any]) -> float:
    """The fraction of a head that is rotated; newer files list it among the parameters of the rotation."""
    for part in (text, text.get("rope_parameters"), text.get("rope_scaling")):
        factor = part.get("partial_rotary_factor") if isinstance(part, Mapping) else None
        if isinstance(factor, (int, float)) and 0 < factor <= 1:
            return float(factor)
    return 1.0


def _dtype(*configs: Mapping[str, Any]) -> str:
    for config in configs:
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch.")
        if dtype in FLOAT_DTYPES:
            return dtype
    return "bfloat16"


def formats_of(quantization: Mapping[str, Any]) -> tuple[str, ...]:
    """The formats of quantized activations in a ``quantization_config``.

    Empty if only weights are quantized, as in AWQ and GPTQ.

    Example:
        >>> formats_of({"quant_method": "fp8", "weight_block_size": [128, 128]})
        ('fp8_group',)
    """
    method = str(quantization.get("quant_method") or quantization.get("quant_algo") or "").lower()
    algorithm = str(quantization.get("quant_algo") or "").upper()
    if algorithm:
        return _ALGORITHMS.get(algorithm, ())
    if method == "fp8":
        if quantization.get("weight_block_size"):
            return ("fp8_group",)
        return ("fp8",) if quantization.get("activation_scheme") == "static" else ("fp8", "fp8_token")
    if method == "fbgemm_fp8":
        return ("fp8_token",)
    if method == "mxfp4":
        return ("mxfp8",)  # the format of activations for such weights, if they are quantized at all
    if method == "compressed-tensors":
        found = [_compressed(group) for group in _groups(quantization)]
        return tuple(dict.fromkeys(name for name in found if name))
    return ()


def _compressed(group: Mapping[str, Any]) -> str:
    """The format of activations in a group of compressed-tensors."""
    activations = group.get("input_activations") or {}
    kind, bits, strategy = (activations.get(name) for name in ("type", "num_bits", "strategy"))
    if (kind, bits, activations.get("symmetric", True)) == ("int", 8, True):
        return {"token": "int8_token", "tensor": "int8"}.get(str(strategy), "")
    if kind != "float":
        return ""
    if bits == 4:
        return "mxfp4" if activations.get("group_size") == 32 else "nvfp4"
    if bits != 8:
        return ""
    if strategy in ("group", "block"):
        return "mxfp8" if activations.get("group_size") == 32 else "fp8_group"
    return {"token": "fp8_token", "tensor": "fp8"}.get(str(strategy), "")
