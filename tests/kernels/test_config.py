"""KernelConfig, QuantSpec and Target: frozen values with a text form that reads back."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import INPUT_DTYPES, VECTOR_BYTES, KernelConfig
from jitnorm.kernels.quant_spec import (
    BLOCK_SIZES,
    GLOBAL_SCALES,
    MXFP4,
    NVFP4,
    SCALE_FORMATS,
    SCALE_LAYOUTS,
    QuantSpec,
)
from jitnorm.kernels.target import TARGET_NAMES, Target

import jitnorm

CONFIG = KernelConfig("rmsnorm", 4096, quant=NVFP4)


@st.composite
def quant_specs(draw: st.DrawFn) -> QuantSpec:
    scale_format = draw(st.sampled_from(SCALE_FORMATS))
    return QuantSpec(
        "e2m1",
        draw(st.sampled_from(BLOCK_SIZES)),
        scale_format,
        draw(st.sampled_from(SCALE_LAYOUTS)),
        "none" if scale_format == "ue8m0" else draw(st.sampled_from(GLOBAL_SCALES)),
    )


@st.composite
def configs(draw: st.DrawFn) -> KernelConfig:
    input_dtype = draw(st.sampled_from(INPUT_DTYPES))
    quant = draw(st.none() | quant_specs())
    block = quant.block_size if quant else 1
    return KernelConfig(
        "rmsnorm",
        block * draw(st.integers(64 // block if quant else 1, 65536 // block)),
        input_dtype,
        draw(st.sampled_from([input_dtype, "float32"])),
        quant,
        draw(st.integers(1, 8)),
        draw(st.sampled_from(VECTOR_BYTES)),
        draw(st.booleans()),
    )


@given(configs())
def test_a_config_s_text_reads_back_as_the_same_value(config: KernelConfig) -> None:
    again = KernelConfig.parse(str(config))
    assert again == config
    assert hash(again) == hash(config)
    assert str(again) == str(config)


@given(configs(), configs())
def test_two_configs_are_equal_exactly_if_their_texts_are(a: KernelConfig, b: KernelConfig) -> None:
    assert (a == b) == (str(a) == str(b))


@given(quant_specs())
def test_a_quant_spec_s_text_reads_back_as_the_same_value(spec: QuantSpec) -> None:
    assert QuantSpec.parse(str(spec)) == spec


@given(configs())
def test_configs_travel_between_processes(config: KernelConfig) -> None:
    assert pickle.loads(pickle.dumps(config)) == config


def test_the_text_form_lists_every_field() -> None:
    assert str(CONFIG) == (
        "rmsnorm:hidden_size=4096,input=bfloat16,weight=bfloat16,quant=e2m1/16/e4m3/linear/none,"
        "row_dims=1,vector_bytes=16,pdl=false"
    )


def test_fields_with_a_default_may_be_left_out_of_the_text() -> None:
    assert KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16") == CONFIG
    assert KernelConfig.parse("rmsnorm:hidden_size=4096") == KernelConfig("rmsnorm", 4096)


def test_the_weight_has_the_input_s_dtype_unless_told() -> None:
    assert KernelConfig("rmsnorm", 64, "float16").weight == "float16"


@pytest.mark.parametrize("value", [CONFIG, NVFP4, Target("sm_90a")])
def test_the_values_are_frozen_and_hashable(value: Any) -> None:
    assert hash(value) == hash(dataclasses.replace(value))
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm", "no hidden_size"),
        ("rmsnorm:", "no hidden_size"),
        ("layernorm:hidden_size=64", r"op: is 'layernorm'; allowed are 'rmsnorm'"),
        ("rmsnorm:hidden_size", "cannot read 'hidden_size'"),
        ("rmsnorm:hidden_size=64,depth=3", "cannot read 'depth=3'.*hidden_size, input"),
        ("rmsnorm:hidden_size=many", "hidden_size is 'many'.*whole number"),
        ("rmsnorm:hidden_size=-64", "hidden_size is '-64'"),
        ("rmsnorm:hidden_size=64,pdl=yes", "pdl: is 'yes'; allowed are 'true', 'false'"),
        (
            "rmsnorm:hidden_size=64,input=float32",
            "input dtype: is 'float32'; allowed are 'float16', 'bfloat16'",
        ),
        (
            "rmsnorm:hidden_size=64,input=float16,weight=bfloat16",
            "weight dtype: is 'bfloat16'; allowed are 'float16', 'float32'",
        ),
        ("rmsnorm:hidden_size=64,row_dims=9", "row_dims: is 9; allowed are 1, 2, 3, 4, 5, 6, 7, 8"),
        ("rmsnorm:hidden_size=64,row_dims=0", "row_dims: is 0"),
        ("rmsnorm:hidden_size=64,vector_bytes=3", "vector_bytes: is 3; allowed are 2, 4, 8, 16"),
        ("rmsnorm:hidden_size=0", "hidden size.* is 0; 1 to 65536"),
        ("rmsnorm:hidden_size=65537", "hidden size.* is 65537; 1 to 65536"),
        ("rmsnorm:hidden_size=48,quant=e2m1/16", "hidden size.* is 48; 64 to 65536 is supported with quant"),
        ("rmsnorm:hidden_size=72,quant=e2m1/16", "72, not a multiple of block_size 16; pad"),
        ("rmsnorm:hidden_size=80,quant=e2m1/32", "80, not a multiple of block_size 32"),
        ("rmsnorm:hidden_size=64,quant=e3m2", "element: is 'e3m2'; allowed are 'e2m1'"),
        ("rmsnorm:hidden_size=64,quant=e2m1/8", "block_size: is 8; allowed are 16, 32"),
        ("rmsnorm:hidden_size=64,quant=e2m1/x", "'e2m1/x' is not element/block_size"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e5m2", "scale_format: is 'e5m2'; allowed are 'e4m3', 'ue8m0'"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/8x4", "scale_layout: is '8x4'; allowed are"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/some", "global_scale: is 'some'; allowed are"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/none/more", "is not element/block_size"),
        ("rmsnorm:hidden_size=64,quant=e2m1/32/ue8m0/linear/given", "global_scale: has no meaning.*ue8m0"),
    ],
)
def test_an_error_names_the_field_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(text)


def test_the_named_formats_are_nvidia_s_and_ocp_s() -> None:
    assert str(NVFP4) == "e2m1/16/e4m3/linear/none"
    assert str(MXFP4) == "e2m1/32/ue8m0/linear/none"
    assert (jitnorm.NVFP4, jitnorm.MXFP4) == (NVFP4, MXFP4)


def test_another_layout_is_another_value() -> None:
    assert str(MXFP4.with_layout("128x4")) == "e2m1/32/ue8m0/128x4/none"
    assert MXFP4.scale_layout == "linear"


@pytest.mark.parametrize(
    ("layout", "swizzled", "both"),
    [("linear", False, False), ("128x4", True, False), ("linear+128x4", True, True)],
)
def test_a_layout_says_which_scales_are_written(layout: str, swizzled: bool, both: bool) -> None:
    spec = NVFP4.with_layout(layout)
    assert (spec.is_swizzled, spec.both_layouts) == (swizzled, both)


def test_a_target_is_known_by_name_and_by_capability() -> None:
    for name in TARGET_NAMES:
        assert str(Target(name)) == name
        assert Target(name).is_cpu == (name == "cpu")
        if name != "cpu":
            assert Target.of_capability(*Target(name).capability) == Target(name)


@pytest.mark.parametrize("name", ["sm_70", "sm_90", "gpu", "", "SM_90a"])
def test_an_unknown_target_names_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"target: '{name}' is not known; use one of cpu, sm_80, .*sm_121a"):
        Target(name)


def test_an_unknown_capability_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"device: compute capability 7\.5 is not supported; supported are 8\.0, "):
        Target.of_capability(7, 5)


def test_the_features_begin_with_their_generation() -> None:
    assert [name for name in TARGET_NAMES if not Target(name).has_native_e4m3] == ["cpu", "sm_80", "sm_86"]
    assert [name for name in TARGET_NAMES if not Target(name).has_pdl] == ["cpu", "sm_80", "sm_86", "sm_89"]
    blackwell = ["sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"]
    assert [name for name in TARGET_NAMES if Target(name).has_native_e2m1] == blackwell
