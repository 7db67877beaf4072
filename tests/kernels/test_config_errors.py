"""Errors of KernelConfig, which name the field and the allowed values."""

from __future__ import annotations

import pytest
from jitnorm.kernels.config import KernelConfig


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm", "no hidden_size"),
        ("rmsnorm:", "no hidden_size"),
        ("softmax:hidden_size=64", r"op: is 'softmax'; allowed are 'rmsnorm', 'layernorm', 'quantize'"),
        ("layernorm:hidden_size=64,unit_bias=true", "op: is 'layernorm', which has no unit_bias; .* use 'rmsnorm'"),
        ("layernorm:hidden_size=64,weight=float16", "weight dtype: is 'float16'; allowed are 'bfloat16', 'float32'"),
        ("quantize:hidden_size=64,quant=e2m1/16,gate_columns=48", "granularity: is 48, which does not divide"),
        ("quantize:hidden_size=64,quant=e2m1/16,gate_columns=65", "granularity: is 65; 1 to 64 is allowed"),
        ("quantize:hidden_size=64,activation=tanh", "activation: is 'tanh'; allowed are 'silu', 'gelu', .* 'relu2', "),
        (
            "quantize:hidden_size=64,activation=swigluoai",
            "activation: is 'swigluoai'; allowed are 'silu', .* 'relu2', ",
        ),
        ("quantize:hidden_size=64,gate_columns=1,activation=x", "activation: is 'x'; allowed are .* 'swigluoai', "),
        ("quantize:hidden_size=64,activation=gelu,input=float8_e4m3fn", "input dtype: is 'float8_e4m3fn'; allowed are"),
        ("rmsnorm:hidden_size=64,activation=gelu,residual=true", "only one of residual, gate_columns or activation"),
        (
            "quantize:hidden_size=64,activation=gelu,quant=e2m1,axis=0",
            "axis: is 0, which excludes .*activation",
        ),
        ("quantize:hidden_size=64,activation=gelu,quant=e4m3/32/ue8m0,alignment=64", "only quantize with block scales"),
        ("dequantize:hidden_size=64,activation=gelu", "op: is 'dequantize', which has no activation"),
        ("rmsnorm:hidden_size=64,streams=5", "streams: is 5; allowed are 0, 1, 2, 3, 4"),
        (
            "rmsnorm:hidden_size=64,streams=2,residual=true",
            "only one of residual, gate_columns or activation",
        ),
        ("quantize:hidden_size=64,quant=e2m1/16,keep_rstd=true", "which has no keep_rstd"),
        ("rmsnorm:hidden_size=64,keep_statistics=true", "which has no keep_statistics; .* use 'layernorm'"),
        ("layernorm:hidden_size=64,keep_statistics=true,keep_rstd=true", "leave keep_rstd False, amax_parts 0"),
        ("layernorm:hidden_size=64,keep_statistics=true,backward=true", "backward: .* excludes keep_statistics"),
        ("rmsnorm:hidden_size", "cannot read 'hidden_size'"),
        ("rmsnorm:hidden_size=64,depth=3", "cannot read 'depth=3'.*hidden_size, input"),
        ("rmsnorm:hidden_size=many", "hidden_size is 'many'.*whole number"),
        ("rmsnorm:hidden_size=-64", "hidden_size is '-64'"),
        ("rmsnorm:hidden_size=64,pdl=yes", "pdl: is 'yes'; allowed are 'true', 'false'"),
        (
            "rmsnorm:hidden_size=64,input=float64",
            "input dtype: is 'float64'; allowed are 'float16', 'bfloat16', 'float32'",
        ),
        ("quantize:hidden_size=64,quant=e2m1,weight=float32", "weight dtype: is 'float32'; allowed are 'none'"),
        (
            "quantize:hidden_size=64",
            "quant: is None, but dequantize, keep_norm and, without",
        ),
        (
            "rmsnorm:hidden_size=64,keep_norm=true",
            "quant: is None, but dequantize, keep_norm and, without",
        ),
        *(
            (f"quantize:hidden_size=64,quant=e2m1,{name}=true", f"op: is 'quantize', which has no .*{name}.*'rmsnorm'")
            for name in ("unit_bias", "residual", "keep_norm")
        ),
        *(
            (f"{config},pair=true", "pair: is True, which needs a plain rmsnorm or a rotation")
            for config in ("rmsnorm:hidden_size=64,quant=e2m1", "quantize:hidden_size=64,quant=e2m1")
        ),
        (
            "rmsnorm:hidden_size=64,residual=true,pair=true",
            "pair: is True, which needs a plain rmsnorm or a rotation",
        ),
        (
            "rmsnorm:hidden_size=64,batched=true,pair=true",
            "pair: is True, which needs a plain rmsnorm or a rotation",
        ),
        ("rmsnorm:hidden_size=64,masked=true", "masked, scale_per_matrix: need batched=True"),
        ("rmsnorm:hidden_size=64,quant=e2m1,experts=2", "op: is 'rmsnorm', which has no experts; .* or use 'quantize'"),
        ("quantize:hidden_size=64,quant=e2m1,experts=1025", "experts: is 1025; 0 to 1024 is allowed"),
        ("quantize:hidden_size=64,quant=e2m1,batched=true,experts=2", "experts: is 2, which excludes batched"),
        ("quantize:hidden_size=64,quant=e2m1,batched=true,gathers=true", "gathers: is given, which excludes"),
        ("quantize:hidden_size=64,activation=silu,gathers=true", "gathers: is given, but only encoded rows at one"),
        ("quantize:hidden_size=64,quant=e2m1/16/e4m3/linear/tensor,gathers=true", "gathers: is given, but the amax"),
        ("quantize:hidden_size=64,quant=e2m1,row_dims=2,experts=2", "experts: is 2, but only encoded rows at one"),
        ("quantize:hidden_size=64,activation=silu,experts=2", "experts: is 2, but only encoded rows at one"),
        ("quantize:hidden_size=64,quant=e2m1/16/e4m3/linear/tensor,experts=2", "experts: is 2, but the amax"),
        (
            "quantize:hidden_size=128,quant=e4m3/128/f32/column,experts=2",
            "scale_layout: is 'column', which does not keep experts'",
        ),
        ("rmsnorm:hidden_size=64,weight_per_matrix=true", "weight_per_matrix: is True, which needs batched=True"),
        ("layernorm:hidden_size=64,batched=true,weight_per_matrix=true", "which has no weight_per_matrix"),
        ("rmsnorm:hidden_size=64,weight=none,bias=true", "bias: needs a weight, but there is none"),
        (
            "quantize:hidden_size=64,quant=e2m1,batched=true,scale_per_matrix=true",
            "scale_per_matrix: is True, but quant has no scale that is given",
        ),
        (
            "dequantize:hidden_size=64",
            "quant: is None, but dequantize, keep_norm and, without",
        ),
        ("dequantize:hidden_size=64,quant=e2m1,residual=true", "op: is 'dequantize', which has no residual"),
        ("dequantize:hidden_size=72,quant=e2m1", "data: its last dimension .* 72, not a multiple of block_size 16"),
        ("rmsnorm:hidden_size=72,streams=2,quant=e2m1", "X: its last dimension .* 72, not a multiple of block_size 16"),
        ("rmsnorm:hidden_size=-1", "input: its last dimension .* is -1; 1 to 262144"),
        (
            "dequantize:hidden_size=64,quant=e2m1/16/e4m3/linear+128x4",
            "scale_layout: is 'linear.128x4', but .* one layout",
        ),
        (
            "dequantize:hidden_size=64,quant=e2m1/16/e4m3/linear/row,tensor_scale=true",
            "global_scale: is 'row', but with tensor_scale it must be 'none'",
        ),
        ("quantize:hidden_size=64,quant=e2m1,tensor_scale=true", "has no tensor_scale; .* or use 'dequantize'"),
        ("rmsnorm:hidden_size=64,axis=0", "op: is 'rmsnorm', which has no axis; leave it -1, or use 'quantize', 'deq"),
        ("quantize:hidden_size=64,quant=e2m1,axis=1", "axis: is 1; allowed are -1, 0"),
        (
            "quantize:hidden_size=64,quant=e4m3/32/ue8m0,axis=0",
            "axis: is 0, which cannot be combined with .* allowed are e2m1",
        ),
        *(
            (f"{config},quant=e4m3/128x128/f32", "block_size: is '128x128', blocks of which only quantize .* use 128,")
            for config in (
                "rmsnorm:hidden_size=128",
                "layernorm:hidden_size=128",
                "quantize:hidden_size=128,gate_columns=-1",
                "quantize:hidden_size=128,streams=2",
            )
        ),
        ("quantize:hidden_size=128,quant=e4m3/128x128/f32,axis=0", "axis: is 0, which cannot be combined with quant"),
        ("quantize:hidden_size=128,quant=e4m3/128x128/f32,scale_ub=true", "scale_ub: is given, but only FP8 and INT8"),
        (
            "quantize:hidden_size=128,quant=e4m3/128x128/f32,schedule=4x2",
            "schedule: is '4x2', but no threads share a row",
        ),
        (
            "quantize:hidden_size=128,quant=e4m3/128x128/f32,batched=true,masked=true",
            "mask: is given, but blocks of 128x128 span rows that it may leave out; pass None",
        ),
        (
            "quantize:hidden_size=128,quant=e4m3/128x128/f32/column",
            "scale_layout: is 'column', which cannot be combined",
        ),
        ("interleave:hidden_size=64,quant=e2m1", "op: is 'interleave', which has no quant; leave it none, or use"),
        ("interleave:hidden_size=64,weight=float32", "weight dtype: is 'float32'; allowed are 'none'"),
        ("interleave:hidden_size=64,input=int8", "input dtype: is 'int8'; allowed are 'float16', .*'uint8'"),
        ("rmsnorm:hidden_size=64,input=uint8", "input dtype: is 'uint8'; allowed are 'float16', 'bfloat16', 'float32'"),
        ("shuffle:hidden_size=64", "shuffle_rows: is 0; allowed are 16, 32"),
        ("shuffle:hidden_size=64,shuffle_rows=16,batched=true", "op: is 'shuffle', which has no batched"),
        (
            "rmsnorm:hidden_size=64,input=float16,weight=bfloat16",
            "weight dtype: is 'bfloat16'; allowed are 'float16', 'float32'",
        ),
        ("rmsnorm:hidden_size=64,row_dims=9", "row_dims: is 9; allowed are 1, 2, 3, 4, 5, 6, 7, 8"),
        ("rmsnorm:hidden_size=64,row_dims=0", "row_dims: is 0"),
        ("rmsnorm:hidden_size=64,vector_bytes=3", "vector_bytes: is 3; allowed are 1, 2, 4, 8, 16"),
        ("rmsnorm:hidden_size=0", "hidden size.* is 0; 1 to 262144"),
        ("rmsnorm:hidden_size=262145", "hidden size.* is 262145; 1 to 262144"),
        ("rmsnorm:hidden_size=8,quant=e2m1/16", "8, not a multiple of block_size 16; pad"),
        ("rmsnorm:hidden_size=72,quant=e2m1/16", "72, not a multiple of block_size 16; pad"),
        ("rmsnorm:hidden_size=80,quant=e2m1/32", "80, not a multiple of block_size 32"),
        ("rmsnorm:hidden_size=64,quant=e3m2", "quant: 'e3m2' is not known; use one of nvfp4"),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/8",
            "block_size: is 8; allowed are 16, 32, 48, 64, 96, 128, 256, '128x128', 'row', 'tensor'",
        ),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/x",
            "block_size: is 'x'; allowed are 16, 32, 48, 64, 96, 128, 256, '128x128', 'row', 'tensor'",
        ),
        ("rmsnorm:hidden_size=64,quant=e2m1/64", "block_size: is 64, which cannot be .* element 'e2m1'.*16, 32"),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/16/e5m2",
            "scale_format: is 'e5m2'; allowed are 'e4m3', 'ue8m0', 'f32', 'f32_ue8m0'",
        ),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/4x4",
            "scale_layout: is '4x4'; allowed are 'linear', '128x4', '8x4'",
        ),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/column", "scale_layout: is 'column', which cannot be combined"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/some", "global_scale: is 'some'; allowed are"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/none/up/false/none/448/more", "is not element/block_size"),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/none/floor",
            "scale_rounding: is 'floor', which cannot",
        ),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/32/ue8m0/linear/none/down",
            "scale_rounding: is 'down'; allowed are 'up'",
        ),
        ("rmsnorm:hidden_size=64,quant=e2m1/32/ue8m0/linear/none/up/true", "four_over_six: is True, which cannot"),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/none/up/1",
            "four_over_six: is '1'; allowed are False",
        ),
        (
            "rmsnorm:hidden_size=64,quant=int8/32/ue8m0",
            "scale_format: is 'ue8m0', which cannot be combined with element 'int8'",
        ),
        (
            "rmsnorm:hidden_size=64,quant=e4m3/row/f32/linear/none/up/false/x",
            "scale_floor: is 'x'; allowed are None and",
        ),
        ("rmsnorm:hidden_size=64,quant=e4m3/row/f32/linear/none/up/false/1e-39", "scale_floor: is 1e-39; allowed are"),
        ("rmsnorm:hidden_size=64,quant=e4m3/row/f32/linear/none/up/false/nan", "scale_floor: is nan; allowed are None"),
        ("rmsnorm:hidden_size=64,quant=e2m1/16/e4m3/linear/none/up/false/0.5", "scale_floor: is 0.5, but only FP8 and"),
        (
            "rmsnorm:hidden_size=64,quant=e4m3/tensor/f32/linear/none/up/false/1",
            "scale_floor: is 1.0, but only FP8 and",
        ),
        ("rmsnorm:hidden_size=64,quant=int8/64/f32_ue8m0", "scale_format: is 'f32_ue8m0', which cannot be"),
        ("quantize:hidden_size=64,amax_parts=2", "amax_parts: is 2; allowed are 0, 1, 256"),
        ("quantize:hidden_size=513,amax_parts=1", "amax_parts: is 1; allowed are 0, 256"),
        ("quantize:hidden_size=64,amax_parts=256,batched=true", "batched: is True, but the amax of a tensor is that"),
        ("rmsnorm:hidden_size=64,quant=e2m1,amax_parts=256", "amax_parts: is 256, but quant is e2m1/16.*; use None"),
        (
            "rmsnorm:hidden_size=64,quant=e2m1,scale_ub=true",
            "scale_ub: is given, but only FP8 and INT8 scales of rows",
        ),
        ("quantize:hidden_size=64,quant=e4m3/tensor/f32,scale_ub=true", "scale_ub: is given, but only FP8 and INT8"),
        (
            "quantize:hidden_size=64,quant=e2m1,inverse_global_scale=true",
            "inverse_global_scale: .* scale is given",
        ),
        ("quantize:hidden_size=64,quant=e2m1,alignment=0", "alignment: is 0; expected a positive int"),
        ("quantize:hidden_size=64,quant=e2m1,alignment=72", "alignment: is 72; allowed are divisors and multiples of"),
        ("rmsnorm:hidden_size=64,quant=e2m1,alignment=32", "alignment: is 32, but only quantize with block scales"),
        ("rmsnorm:hidden_size=64,input=float8_e4m3fn", "input dtype: is 'float8_e4m3fn'; allowed are 'float16', 'bf"),
        (
            "rmsnorm:hidden_size=64,quant=e2m1/32/ue8m0/linear/given",
            "global_scale: is 'given', which cannot be combined with .*ue8m0.*then are 'none'",
        ),
    ],
)
def test_an_error_names_the_field_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(text)
