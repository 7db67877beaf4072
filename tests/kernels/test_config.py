"""KernelConfig and its parts: frozen values with a text form that can be read back."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.config_rules import FLOAT_DTYPES, INPUT_DTYPES, MOVED_DTYPES, SHUFFLE_ROWS, VECTOR_BYTES
from jitnorm.kernels.quant_spec import (
    MXFP4,
    NVFP4,
    QuantSpec,
)
from jitnorm.kernels.target import Target

CONFIG = KernelConfig("rmsnorm", 4096, quant=NVFP4)


SWIZZLED = ("linear", "128x4", "8x4", "linear+128x4", "linear+8x4")
GLOBAL = ("none", "given", "row", "tensor")
ROUNDINGS = ("up", "floor", "even")
# What goes together, as docs/numerics.md has it.
EVERY_SPEC = [
    *(QuantSpec("e2m1", n, "e4m3", at, g) for n in (16, 32) for at in SWIZZLED for g in GLOBAL),
    *(QuantSpec("e2m1", 16, "e4m3", at, g, four_over_six=f) for at in SWIZZLED for g in GLOBAL for f in (True, "mae")),
    *(QuantSpec("e2m1", n, "ue8m0", at, "none", r) for n in (16, 32) for at in SWIZZLED for r in ROUNDINGS),
    *(QuantSpec("e4m3", 32, "ue8m0", at, "none", r) for at in SWIZZLED for r in ROUNDINGS),
    *(
        QuantSpec("e4m3", n, scale, at)
        for n in (16, 32, 48, 64, 96, 128, 256)
        for scale in ("f32", "f32_ue8m0")
        for at in ("linear", "column", "column4")
    ),
    *(QuantSpec("e4m3", n, "f32_ue8m0", "packed") for n in (16, 32, 48, 64, 96, 128, 256)),
    *(QuantSpec("e4m3", "128x128", scale) for scale in ("f32", "f32_ue8m0")),
    *(
        QuantSpec("int8", n, "f32", at)
        for n in (16, 32, 48, 64, 96, 128, 256)
        for at in ("linear", "column", "column4")
    ),
    *(QuantSpec(element, n, "f32") for element in ("e4m3", "e5m2", "int8") for n in ("row", "tensor")),
    *(QuantSpec(element, "tensor", "f32", global_scale="tensor") for element in ("e4m3", "e5m2", "int8")),
    *(
        QuantSpec(element, n, "f32", global_scale="given")
        for element in ("e4m3", "e5m2", "int8")
        for n in ("row", "column", 16, 32, 48, 64, 96, 128, 256, "128x128", "4x256", "allx48", "2xall")
    ),
]
# Some of those whose scales have a floor.
FLOORED = [
    QuantSpec(element, n, "f32", scale_floor=floor)
    for element, n in (("e4m3", "row"), ("e4m3", 64), ("int8", 16))
    for floor in (1 / (448 * 512), 2.0**-126, 2.0**127)
]
# Some of those with another largest scale of a block.
OF_256 = [
    QuantSpec("e2m1", 16, "e4m3", "128x4", g, four_over_six=f, e4m3_max=largest)
    for largest in (256, 5.3)
    for g in ("row", "tensor")
    for f in (False, "mae")
]


def quant_specs() -> st.SearchStrategy[QuantSpec]:
    return st.sampled_from([*EVERY_SPEC, *FLOORED, *OF_256])


def item_configs() -> st.SearchStrategy[KernelConfig]:
    """Configurations of the ops that are not row-wise."""
    sizes, floats = st.integers(1, 262144), st.sampled_from(FLOAT_DTYPES)
    columns = st.sampled_from([s for s in EVERY_SPEC if s.element == "e2m1" and s.scale_layout == "linear"])
    columns = columns.filter(lambda spec: spec.global_scale not in ("row", "tensor"))
    squares, vectors = st.sampled_from([s for s in EVERY_SPEC if s.block_rows > 1]), st.sampled_from(VECTOR_BYTES)
    return st.one_of(
        st.builds(KernelConfig, st.just("quantize"), sizes, floats, quant=squares, batched=st.booleans()),
        st.builds(
            KernelConfig, st.sampled_from(["quantize", "dequantize"]), sizes, floats, quant=columns, axis=st.just(0)
        ),
        st.builds(
            KernelConfig, st.just("dequantize"), st.just(512), floats, quant=st.just(MXFP4), tensor_scale=st.booleans()
        ),
        st.builds(KernelConfig, st.just("interleave"), sizes, st.sampled_from(MOVED_DTYPES), batched=st.booleans()),
        st.builds(
            KernelConfig, st.just("shuffle"), sizes, st.sampled_from(MOVED_DTYPES),
            shuffle_rows=st.sampled_from(SHUFFLE_ROWS), vector_bytes=vectors,
        ),
    )  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> KernelConfig:
    quant = draw(st.none() | quant_specs().filter(lambda spec: spec.block_rows == 1))
    block = quant.block_columns if quant else 1
    amax_only = quant is None and draw(st.booleans())
    op = draw(st.sampled_from(["rmsnorm", "quantize"])) if quant or amax_only else "rmsnorm"
    normalizes = op == "rmsnorm"
    if op == "rmsnorm" and quant is None and draw(st.booleans()):
        return draw(item_configs())
    input_dtype = draw(st.sampled_from(FLOAT_DTYPES if normalizes else INPUT_DTYPES))
    has_bound = quant is not None and quant.may_be_bounded
    pads = not normalizes and quant is not None and not quant.scale_format.startswith("f32")
    batched = not amax_only and draw(st.booleans())
    counts_rows = not amax_only and not (quant and quant.needs_tensor_amax)
    return KernelConfig(
        op,
        block * draw(st.integers(1, 262144 // block // 4)),
        input_dtype,
        draw(st.sampled_from([input_dtype, "float32"])) if normalizes else "none",
        normalizes and draw(st.booleans()),
        normalizes and draw(st.booleans()),
        quant,
        normalizes and quant is not None and draw(st.booleans()),
        draw(st.integers(1, 8)),
        draw(st.sampled_from(VECTOR_BYTES)),
        draw(st.booleans()),
        batched=batched,
        masked=batched and counts_rows and draw(st.booleans()),
        scale_per_matrix=batched and quant is not None and quant.needs_given_scale and draw(st.booleans()),
        amax_parts=256 if amax_only else 0,
        scale_ub=has_bound and draw(st.booleans()),
        inverse_global_scale=quant is not None
        and quant.has_blocks
        and quant.global_scale == "given"
        and draw(st.booleans()),
        weight_per_matrix=batched and normalizes and draw(st.booleans()),
        alignment=block * draw(st.integers(1, 4)) if pads else 1,
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


def test_the_text_form_lists_the_common_fields_and_what_is_not_at_its_default() -> None:
    assert str(CONFIG) == (
        "rmsnorm:hidden_size=4096,input=bfloat16,weight=bfloat16,unit_bias=false,residual=false,"
        "quant=e2m1/16/e4m3/linear/none,keep_norm=false,row_dims=1,vector_bytes=16,pdl=false"
    )
    gated = KernelConfig("quantize", 64, quant=NVFP4, gate_columns=-1)
    assert str(gated).endswith("pdl=false,gate_columns=64")
    assert KernelConfig.parse(str(gated)) == gated
    clamped = KernelConfig("quantize", 64, gate_columns=1, activation="swigluoai")
    assert str(clamped).endswith("pdl=false,gate_columns=1,activation=swigluoai")
    assert KernelConfig.parse(str(clamped)) == clamped


def test_gates_go_through_silu_unless_told() -> None:
    assert KernelConfig("quantize", 64, quant=NVFP4, gate_columns=-1).activation == "silu"
    assert KernelConfig("quantize", 64, quant=NVFP4).activation == ""


def test_fields_with_a_default_may_be_left_out_of_the_text() -> None:
    assert KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16") == CONFIG
    assert KernelConfig.parse("rmsnorm:hidden_size=4096") == KernelConfig("rmsnorm", 4096)


def test_the_weight_has_the_input_s_dtype_unless_told() -> None:
    assert KernelConfig("rmsnorm", 64, "float16").weight == "float16"
    assert KernelConfig("quantize", 64, quant=NVFP4).weight == "none"


def test_every_other_combination_is_refused() -> None:
    values = [list(dict.fromkeys(getattr(s, f.name) for s in EVERY_SPEC)) for f in dataclasses.fields(QuantSpec)]
    allowed = set(map(dataclasses.astuple, EVERY_SPEC))
    for combination in itertools.product(*values):
        if combination in allowed:
            QuantSpec(*combination)
        else:
            with pytest.raises(ValueError, match=r"\w+: is .*, which cannot be combined with .*; allowed then are "):
                QuantSpec(*combination)


@pytest.mark.parametrize("value", [CONFIG, NVFP4, Target("sm_90a")])
def test_the_values_are_frozen_and_hashable(value: Any) -> None:
    assert hash(value) == hash(dataclasses.replace(value))
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, "x")
