"""Specifications in TOML, including the built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.warm.expand import configs_of
from jitnorm.warm.models import MODEL_FORMATS, entries_of, read_model
from jitnorm.warm.plan import jobs_of
from jitnorm.warm.spec import load_entries, preset_file, preset_names, read_toml

SM100A = Target("sm_100a")
PRESETS = [name for name in preset_names() if name != "default"]
SPEC = """
title = "Two kernels, a model and what somebody else has"
include = ["other.toml"]
formats = ["nvfp4"]
row_class = ["few", "some", "usual"]

[defaults]
input = "float16"

[[model]]
name = "mine"
hidden_size = 2048
gate_sizes = [8192]

[[kernel]]
op = ["rmsnorm", "fused_add_rmsnorm"]
hidden_size = [64, 128]
weight = "float32"
"""
OTHER = """
[[model]]
name = "theirs"
hidden_size = 1024
"""


def configs(path: Path, target: Target = SM100A, **settings: Any) -> set[KernelConfig]:
    return {job.config for job in jobs_of(load_entries(path, **settings), [target])}


def expected(op: str, **choices: Any) -> set[KernelConfig]:
    return set(configs_of(op, choices, SM100A))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "other.toml").write_text(OTHER)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def test_kernels_are_multiplied_out_with_the_defaults(spec: Path) -> None:
    found = configs(spec)
    for op in ("rmsnorm", "fused_add_rmsnorm"):
        for size in (64, 128):
            assert expected(op, hidden_size=size, input="float16", weight="float32") <= found


def test_models_get_the_formats_and_classes_of_rows_that_the_file_names_and_so_do_included_ones(spec: Path) -> None:
    found = configs(spec)
    given = {"quant": "nvfp4", "layout": "128x4", "global_scale": "given", "row_class": "few"}
    for size in (2048, 1024):
        assert expected("rmsnorm_fp4quant", hidden_size=size, **given) <= found
    assert expected("silu_and_mul_nvfp4_quantize", hidden_size=8192, row_class="some") <= found
    assert not any(config.many_rows for config in found if config.hidden_size >= 1024)


def test_the_command_line_has_the_last_word_on_models(spec: Path) -> None:
    found = configs(spec, formats=["fp8"], row_class="many", tensor_parallel=[2, 4])
    assert {str(config.quant) for config in found if config.quant} == {"e4m3/tensor/f32/linear/none"}
    assert {config.hidden_size for config in found if config.gate_columns} == {4096, 2048}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernels = []", "has 'kernels'; allowed are title"),
        ("[[kernel]]\nhidden_size = 64", "has no op"),
        ("[[kernel]]\nop = 'softmax'", "op: is 'softmax'"),
        ("[[kernel]]\nop = 'rmsnorm'\nhidden = 64", "rmsnorm: has no choice 'hidden'"),
        ("[[model]]\nname = 'm'", "model: 'm' has no hidden_size"),
        ("[[model]]\nname = 'm'\nhidden_size = 64\nheads = 2", "model: has 'heads'"),
        ("formats = ['fp3']\n[[model]]\nname = 'm'\nhidden_size = 64", "formats: has 'fp3'"),
        ("include = ['llama9']", "preset: is 'llama9'; allowed are deepseek-v3"),
        ("include = ['spec.toml']", "includes itself"),
        ("[", "cannot read"),
    ],
)
def test_a_wrong_specification_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_entries(path)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_its_sources_and_expands_for_every_kind_of_target(preset: str) -> None:
    table = read_toml(preset_file(preset))
    assert table["title"]
    assert table["sources"]
    assert set(table["formats"]) <= set(MODEL_FORMATS)
    for name in ("cpu", "sm_80", "sm_90a", "sm_100a"):
        assert configs(preset_file(preset), Target(name))


def test_the_default_is_all_presets() -> None:
    everything = set().union(*(configs(preset_file(preset)) for preset in PRESETS))
    assert configs(preset_file("default")) == everything


def test_what_a_preset_has_is_what_the_calls_of_its_models_run() -> None:
    found = configs(preset_file("llama3"))
    nvfp4 = {"quant": "nvfp4", "layout": "128x4", "global_scale": "given"}
    for op, choices in [
        ("rmsnorm", {}),
        ("fused_add_rmsnorm", {}),
        ("rmsnorm_fp4quant", nvfp4),
        ("add_rmsnorm_fp4quant", nvfp4),
        ("nvfp4_quantize", {}),
        ("rms_norm_dynamic_per_token_quant", {"residual": True}),
        ("fused_add_rmsnorm_quant", {}),
    ]:
        assert expected(op, hidden_size=4096, **choices) <= found, op
    assert expected("silu_and_mul_nvfp4_quantize", hidden_size=14336) <= found


def test_the_norms_of_a_model_have_its_rounding() -> None:
    model = {"name": "m", "hidden_size": 4096, "head_sizes": [128], "gemm_sizes": [4096], "formats": ["mxfp8"]}
    found = {entry.op: dict(entry.choices) for entry in entries_of(read_model({**model, "rounding": "hf"}))}
    assert {op for op, choices in found.items() if choices.get("rounding") == "hf"} == {
        "rmsnorm", "fused_add_rmsnorm", "qk_rmsnorm", "qk_rmsnorm_rope", "qk_rmsnorm_rope_cache",
        "qk_rmsnorm_rope_cache_quant", "norm_quantize",
    }  # fmt: skip
    assert all("rounding" not in dict(entry.choices) for entry in entries_of(read_model(model)))


def test_sizes_that_are_not_whole_blocks_are_left_out() -> None:
    model = read_model({"name": "m", "hidden_size": 2880, "gemm_sizes": [4096], "formats": ["fp8_group"]})
    found = [config for entry in entries_of(model) for config in entry.configs(SM100A) if config.quant]
    assert {config.hidden_size for config in found} == {4096}
