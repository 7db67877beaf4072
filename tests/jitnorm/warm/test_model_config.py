"""Models are read from Hugging Face's configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jitnorm.warm.model_config import formats_of, load_model, model_of
from jitnorm.warm.models import Model, entries_of, left_out_of, read_model
from jitnorm.warm.spec import preset_file, read_toml

QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": 4096, "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 12288, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_30B_A3B: dict[str, Any] = {
    **QWEN3_8B, "model_type": "qwen3_moe", "hidden_size": 2048, "num_experts": 128, "moe_intermediate_size": 768,
    "intermediate_size": 6144,
}  # fmt: skip
LLAMA_8B: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336,
    "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
}  # fmt: skip
GEMMA3_27B: dict[str, Any] = {
    "model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "head_dim": 128, "num_attention_heads": 32,
        "intermediate_size": 21504, "hidden_activation": "gelu_pytorch_tanh",
    },
}  # fmt: skip
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "hidden_size": 2880, "head_dim": 64, "num_attention_heads": 64, "intermediate_size": 2880,
    "num_local_experts": 128, "hidden_act": "silu", "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
LLAMA4: dict[str, Any] = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_attention_heads": 40, "head_dim": 128, "num_local_experts": 16, "use_qk_norm": True, "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    },
}  # fmt: skip


def preset_model(preset: str, name: str) -> Model:
    return next(m for m in map(read_model, read_toml(preset_file(preset))["model"]) if m.name == name)


def sizes(model: Model) -> tuple[object, ...]:
    """The dimensions in any order; the format is that of one of several checkpoints."""
    lists = (
        model.head_sizes,
        model.norm_sizes,
        model.latent_sizes,
        model.gate_sizes,
        model.expert_sizes,
        model.gemm_sizes,
    )
    return (model.hidden_size, model.activation, model.unit_bias, model.dtype, *map(frozenset, lists))


@pytest.mark.parametrize(
    ("config", "preset", "name"),
    [
        (QWEN3_8B, "qwen3", "Qwen3-8B"),
        (LLAMA_8B, "llama3", "Llama-3.1-8B"),
        (DEEPSEEK_V3, "deepseek-v3", "DeepSeek-V3"),
        (GEMMA3_27B, "gemma3", "Gemma-3-27B"),
        (GPT_OSS, "gpt-oss", "gpt-oss-20b, gpt-oss-120b"),
    ],
)
def test_the_built_in_lists_have_what_the_published_files_say(config: dict[str, Any], preset: str, name: str) -> None:
    published, built_in = model_of(config, name), preset_model(preset, name)
    assert sizes(published) == sizes(built_in)
    assert set(published.experts) <= set(built_in.experts)  # of models that differ in their number alone


def test_experts_are_told_from_what_every_token_passes() -> None:
    assert model_of(QWEN3_30B_A3B, "m").expert_sizes == (768,)
    assert model_of(DEEPSEEK_V3, "m").expert_sizes == (2048,)
    assert model_of(LLAMA4, "m").expert_sizes == (8192,)
    assert model_of(LLAMA4, "m").gate_sizes == (8192, 16384)


def test_rows_of_as_many_experts_are_quantized_in_mxfp4_by_either_rule() -> None:
    assert preset_model("gpt-oss", "gpt-oss-20b, gpt-oss-120b").experts == (32, 128)
    model = preset_model("kimi-k2", "Kimi-K2")
    grouped = [entry for entry in entries_of(model, ["mxfp4"], tensor_parallel=(1, 8)) if "grouped" in entry.op]
    assert {entry.op for entry in grouped} == {"grouped_quantize", "silu_and_mul_grouped_quantize"}
    found = {(choices["experts"], choices["scale_rounding"]) for choices in (dict(entry.choices) for entry in grouped)}
    assert found == {(experts, rounding) for experts in (384, 48) for rounding in ("up", "even")}


def test_heads_are_normalized_where_the_model_does_it_with_a_weight_or_without() -> None:
    assert model_of(QWEN3_8B, "m").head_sizes == (128,)
    assert model_of({**LLAMA_8B, "use_qk_norm": True}, "m").head_sizes == (128,)
    assert model_of(QWEN3_8B, "m").rotary_factor == 1
    assert model_of({**QWEN3_8B, "partial_rotary_factor": 0.25}, "m").rotary_factor == 0.25
    assert model_of({**QWEN3_8B, "rope_parameters": {"partial_rotary_factor": 0.5}}, "m").rotary_factor == 0.5
    assert model_of(LLAMA_8B, "m").head_sizes == ()
    assert model_of(LLAMA4, "m").head_sizes == (128,)
    assert [entry for entry in entries_of(model_of(LLAMA4, "m")) if ("weight", "none") in entry.choices]


def test_the_gated_norms_of_linear_attention() -> None:
    model = model_of({**QWEN3_8B, "model_type": "qwen3_next", "linear_value_head_dim": 128}, "m")
    assert model.gated_sizes == (128,)
    (entry,) = (entry for entry in entries_of(model, ()) if entry.op == "rmsnorm_gated")
    assert dict(entry.choices)["hidden_size"] == 128


@pytest.mark.parametrize(
    ("config", "activation"),
    [(QWEN3_8B, "silu"), (GEMMA3_27B, "gelu_tanh"), ({**LLAMA_8B, "model_type": "gemma", "hidden_act": "gelu"}, "gelu"),
     (GPT_OSS, "swigluoai")],
)  # fmt: skip
def test_gates_have_the_model_s_activation(config: dict[str, Any], activation: str) -> None:
    model = model_of(config, "m")
    assert model.activation == activation
    assert model.gate_sizes
    chosen = [dict(entry.choices) for entry in entries_of(model, ["mxfp8"]) if entry.op == "silu_and_mul_quantize"]
    assert {choices.get("activation", "silu") for choices in chosen} == {activation}
    assert {choices.get("gate_columns", -1) for choices in chosen} == {1 if activation == "swigluoai" else -1}


def test_activations_that_gate_nothing_are_followed_by_quantization_alone() -> None:
    model = model_of({**LLAMA_8B, "model_type": "gpt_neox", "hidden_act": "gelu"}, "m")
    assert model.gate_sizes == ()
    assert 14336 in model.gemm_sizes


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [({"torch_dtype": "float16"}, "float16"), ({"dtype": "float32"}, "float32"), ({}, "bfloat16"),
     ({"torch_dtype": "torch.float16"}, "float16")],
)  # fmt: skip
def test_the_dtype_of_activations(fields: dict[str, str], dtype: str) -> None:
    assert model_of({"hidden_size": 64, **fields}, "m").dtype == dtype


def compressed(**activations: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"input_activations": activations}}}


@pytest.mark.parametrize(
    ("quantization", "formats"),
    [
        ({}, ()),
        ({"quant_method": "awq", "bits": 4}, ()),
        ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8",)),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, ("fp8", "fp8_token")),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8_group",)),
        ({"quant_method": "mxfp4"}, ("mxfp8",)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4",)),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("fp8",)),
        (compressed(num_bits=8, type="float", strategy="token", dynamic=True), ("fp8_token",)),
        (compressed(num_bits=8, type="float", strategy="tensor"), ("fp8",)),
        (compressed(num_bits=8, type="float", strategy="group", group_size=128), ("fp8_group",)),
        (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), ("nvfp4",)),
        (compressed(num_bits=8, type="int", strategy="token", symmetric=True), ("int8_token",)),
        (compressed(num_bits=8, type="int", strategy="tensor"), ("int8",)),
        (compressed(num_bits=8, type="int", strategy="token", symmetric=False), ()),
        (compressed(num_bits=4, type="int", strategy="token"), ()),
    ],
)
def test_the_formats_of_a_quantization_config(quantization: dict[str, Any], formats: tuple[str, ...]) -> None:
    assert formats_of(quantization) == formats


@pytest.mark.parametrize(
    ("config", "left_out"),
    [
        (QWEN3_8B, []),
        (GEMMA3_27B, []),
        (GPT_OSS, []),
        (
            {**LLAMA_8B, "hidden_act": "relu2"},
            ["its activation, relu2, which is not a known gate: only its output is quantized"],
        ),
        ({**LLAMA_8B, "quantization_config": {"quant_algo": "INT4_AWQ"}}, ["its quantization, INT4_AWQ, whose format"]),
        (
            {**LLAMA_8B, "quantization_config": compressed(num_bits=4, type="int", strategy="token")},
            ["its activations in int4, one scale per token"],
        ),
    ],
)
def test_what_has_no_kernel_is_named(config: dict[str, Any], left_out: list[str]) -> None:
    found = left_out_of(model_of(config, "mine"))
    assert len(found) == len(left_out)
    assert all(line.startswith(f"mine: {start}") for line, start in zip(found, left_out, strict=True))


def test_sizes_that_a_format_or_a_division_cannot_have_are_named() -> None:
    model = Model("mine", 2880, gate_sizes=(4096,), gemm_sizes=(300,), formats=("nvfp4", "fp8", "fp8_group"))
    assert left_out_of(model, tensor_parallel=(1, 8)) == [
        "mine: rows of 300 divided by 8, which leaves a remainder",
        "mine: nvfp4 of rows of 300, which are not whole blocks of 16",
        "mine: fp8_group of rows of 2880, 300, which are not whole blocks of 128",
    ]
    assert left_out_of(model, ["fp8"]) == []
    named = {(entry.op, dict(entry.choices)["hidden_size"]) for entry in entries_of(model, tensor_parallel=(1, 8))}
    assert ("quantize", 37) not in named
    assert ("quantize", 300) in named


def test_a_file_or_its_folder_is_read_and_what_modelopt_puts_beside_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    assert load_model(tmp_path / "config.json") == load_model(tmp_path)
    assert load_model(tmp_path).formats == ()
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    assert load_model(tmp_path).formats == ("nvfp4",)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "has no hidden_size"), ("[]", "is not a JSON object"), ("{", "cannot read")],
)
def test_what_says_too_little_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"model: .*{message}") as error:
        load_model(path)
    assert str(path) in str(error.value)
