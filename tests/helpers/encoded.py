"""Every encoding, and its expected result, byte for byte, from the NumPy reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from expected import assert_same_bytes
from jitnorm.kernels.quant_spec import FP8_BLOCK, QuantSpec
from numpy.typing import NDArray

from jitnorm import QuantizedTensor
from jitnorm.reference import (
    GroupScaleFormat,
    column_major_scales,
    packed_scales,
    quantize_fp4,
    quantize_fp8_block,
    quantize_fp8_group,
    quantize_fp8_static,
    quantize_fp8_tensor,
    quantize_fp8_token,
    quantize_int8_group,
    quantize_int8_static,
    quantize_int8_tensor,
    quantize_int8_token,
    quantize_mxfp8,
    quantize_nvfp4_row,
    quantize_nvfp4_tensor,
    rmsnorm_f32,
    swizzle_scales,
)

Array = NDArray[Any]

_SWIZZLED = ("linear", "128x4", "8x4", "linear+128x4", "linear+8x4")
SPECS = [
    *(QuantSpec("e2m1", 16, "e4m3", at, g) for at in _SWIZZLED for g in ("none", "given", "row")),
    *(QuantSpec("e2m1", 32, "ue8m0", at) for at in _SWIZZLED),
    QuantSpec("e2m1", 16, "ue8m0", "8x4"),
    QuantSpec("e2m1", 32, "e4m3", "linear+8x4", "row"),
    *(QuantSpec("e4m3", 32, "ue8m0", at) for at in _SWIZZLED),
    *(
        QuantSpec("e4m3", size, scale_format, at)
        for size in (64, 128)
        for scale_format in ("f32", "f32_ue8m0")
        for at in ("linear", "column", "column4")
    ),
    *(QuantSpec(element, size, "f32") for element in ("e4m3", "e5m2") for size in ("row", "tensor")),
    *(QuantSpec("e2m1", 16, "e4m3", at, "tensor") for at in ("linear", "linear+128x4")),
    QuantSpec("e2m1", 32, "e4m3", "linear", "tensor"),
    *(QuantSpec(element, "tensor", "f32", "linear", "tensor") for element in ("e4m3", "e5m2")),
    *(
        QuantSpec("e2m1", 16, "e4m3", at, g, four_over_six=True)
        for at, g in (("linear", "none"), ("8x4", "given"), ("128x4", "row"), ("linear", "tensor"))
    ),
    *(QuantSpec("e2m1", size, "ue8m0", "linear", "none", "floor") for size in (16, 32)),
    QuantSpec("e4m3", 32, "ue8m0", "128x4", "none", "floor"),
    *(QuantSpec("int8", size, "f32", at) for size, at in ((64, "linear"), (128, "column4"))),
    *(
        QuantSpec("int8", *others)
        for others in (("row", "f32"), ("tensor", "f32"), ("tensor", "f32", "linear", "tensor"))
    ),
    *(QuantSpec("e4m3", size, "f32", at) for size, at in ((16, "linear"), (32, "column"), (256, "column4"))),
    *(QuantSpec("e4m3", size, "f32_ue8m0", at) for size, at in ((16, "column4"), (256, "linear"))),
    *(QuantSpec("int8", size, "f32", at) for size, at in ((16, "column"), (32, "linear"), (256, "linear"))),
    *(
        QuantSpec(element, size, scale_format, scale_floor=floor)
        for element, size, scale_format, floor in (
            ("e4m3", "row", "f32", 0.01),
            ("e4m3", 32, "f32", 2.0**-126),
            ("e5m2", "row", "f32", 1e-4),
            ("e4m3", 64, "f32", 0.003),
            ("e4m3", 64, "f32_ue8m0", 0.003),
            ("int8", "row", "f32", 0.01),
            ("int8", 64, "f32", 0.02),
        )
    ),
    *(QuantSpec("e2m1", 16, "e4m3", at, g, four_over_six="mae") for at, g in (("128x4", "none"), ("linear", "row"))),
    *(QuantSpec("e2m1", 16, "e4m3", "linear", g, four_over_six="mae", e4m3_max=256) for g in ("row", "tensor")),
    QuantSpec("e2m1", 16, "e4m3", "8x4", "row", e4m3_max=256),
    *(QuantSpec("e4m3", size, "f32_ue8m0", "packed") for size in (16, 64, 128)),
    QuantSpec("e4m3", 48, "f32", "column4"),
    QuantSpec("e4m3", 96, "f32_ue8m0", "packed"),
    QuantSpec("e2m1", 32, "ue8m0", "8x4", "none", "even"),
]
# Those of blocks that span rows, which only `quantize` has.
SQUARES = [FP8_BLOCK, replace(FP8_BLOCK, scale_format="f32_ue8m0")]
GIVEN = np.float32(0.37)


def _one_of_each(specs: list[QuantSpec], kind: Callable[[QuantSpec], object]) -> list[QuantSpec]:
    """One encoding of each kind; similar ones take turns."""
    kinds: dict[object, list[QuantSpec]] = {}
    for spec in specs:
        kinds.setdefault(kind(spec), []).append(spec)
    return [alike[number % len(alike)] for number, alike in enumerate(kinds.values())]


# Those that differ in more than the layout of scales: for what happens before scales are stored.
KINDS = _one_of_each(SPECS, lambda spec: replace(spec, scale_layout="linear"))
# Those that differ in more than how scales are rounded, too: for what happens before there are any.
BLOCKINGS = _one_of_each(KINDS, lambda spec: (spec.element, spec.block_size, spec.global_scale))
# Those that find a scale for the whole tensor, and of the others those that batches are tested in.
OF_TENSORS = [spec for spec in KINDS if spec.needs_tensor_amax]
IN_BATCHES = [spec for spec in KINDS if not spec.needs_tensor_amax][::2]


def dtype_of(spec: QuantSpec) -> str:
    """The dtype in which all tests use one of `SPECS`, so that a shared kernel is compiled once."""
    return ("float16", "bfloat16", "float16", "float32")[SPECS.index(spec) % 4]


def hidden_size_of(spec: QuantSpec) -> int:
    """A small hidden size that fills neither the layout's tiles nor, if blocks allow it, a chunk."""
    if not isinstance(spec.block_size, int):
        return 40
    return 96 if spec.block_size <= 32 else 3 * spec.block_size


def hidden_sizes_of(spec: QuantSpec) -> tuple[int, int]:
    """The small hidden size, and one of many chunks: 4096 or the largest multiple of the block below it."""
    block = spec.block_size if isinstance(spec.block_size, int) else 1
    return hidden_size_of(spec), 4096 // block * block


def rows_of(x: Array) -> Array:
    """The array with its leading dimensions merged."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def normalized(
    x: Array, weight: Array, residual: Array | None = None, unit_bias: bool = False, eps: float = 1e-6
) -> Array:
    """The unrounded, two-dimensional norm."""
    added = None if residual is None else rows_of(residual)
    return rmsnorm_f32(rows_of(x), weight, eps, residual=added, weight_bias=float(unit_bias))


def encoded(y: Array, spec: QuantSpec, given: np.float32 | None = None) -> dict[str, Array]:
    """The expected encoding of the rows `y`, by the fields of QuantizedTensor; without leading dimensions."""
    if spec.element == "int8":
        return _int8(y, spec, given)
    if spec.block_size == "tensor" and spec.global_scale == "tensor":
        codes, found = quantize_fp8_tensor(y, spec.element)  # type: ignore[arg-type]
        return {"data": codes, "scale": found}
    if spec.block_size == "tensor":
        assert given is not None
        return {"data": quantize_fp8_static(y, float(given), spec.element)}  # type: ignore[arg-type]
    if spec.block_size == "row":
        codes, row_scale = quantize_fp8_token(y, spec.element, None, spec.scale_floor)  # type: ignore[arg-type]
        return {"data": codes, "scale": row_scale[:, 0]}
    if spec.scale_format.startswith("f32"):
        scale_format: GroupScaleFormat = "ue8m0_f32" if spec.scale_format == "f32_ue8m0" else "f32"
        if spec.block_rows > 1:
            codes, scales = quantize_fp8_block(y, scale_format)
            return {"data": codes, "scale": scales}
        codes, linear = quantize_fp8_group(y, int(spec.block_size), scale_format, None, spec.scale_floor)
        return {"data": codes, "scale": _group_scales(linear, spec)}
    fields = _block_codes(y, spec, given)
    if spec.scale_layout != "linear":
        linear = fields["scale"]
        fields["scale"] = swizzle_scales(linear, spec.scale_layout.removeprefix("linear+"))  # type: ignore[arg-type]
        if spec.both_layouts:
            fields["scale_unswizzled"] = linear
    return fields


def _int8(y: Array, spec: QuantSpec, given: np.float32 | None) -> dict[str, Array]:
    if spec.block_size == "tensor" and spec.global_scale == "tensor":
        codes, scale = quantize_int8_tensor(y)
        return {"data": codes, "scale": scale}
    if spec.block_size == "tensor":
        assert given is not None
        return {"data": quantize_int8_static(y, float(given))}
    if spec.block_size == "row":
        codes, row_scale = quantize_int8_token(y, None, spec.scale_floor)
        return {"data": codes, "scale": row_scale[:, 0]}
    codes, linear = quantize_int8_group(y, int(spec.block_size), None, spec.scale_floor)
    return {"data": codes, "scale": _group_scales(linear, spec)}


def _group_scales(linear: Array, spec: QuantSpec) -> Array:
    """Scales of groups in the layout of an encoding."""
    if spec.scale_layout == "linear":
        return linear
    if spec.is_packed:
        return packed_scales(linear).reshape(-(-linear.shape[1] // 4), -1 if len(linear) else 0)
    flat = column_major_scales(linear, spec.scale_layout == "column4")
    return flat.reshape(linear.shape[1], -1 if len(linear) else 0)


def _block_codes(y: Array, spec: QuantSpec, given: np.float32 | None) -> dict[str, Array]:
    """Codes with scales in one byte, in the linear layout."""
    if spec.element == "e4m3":
        codes, scales = quantize_mxfp8(y, spec.scale_rounding)  # type: ignore[arg-type]
        return {"data": codes, "scale": scales}
    choice: dict[str, Any] = {"four_over_six": spec.four_over_six, "e4m3_max": spec.e4m3_max}
    if spec.global_scale == "row":
        codes, scales, row_scale = quantize_nvfp4_row(y, int(spec.block_size), **choice)
        return {"data": codes, "scale": scales, "row_scale": row_scale}
    if spec.global_scale == "tensor":
        codes, scales, found = quantize_nvfp4_tensor(y, int(spec.block_size), **choice)
        return {"data": codes, "scale": scales, "tensor_scale": found}
    codes, scales = quantize_fp4(
        y,
        block_size=int(spec.block_size),
        scale_format=spec.scale_format,  # type: ignore[arg-type]
        global_scale=float(given) if spec.global_scale == "given" and given is not None else None,
        scale_rounding=spec.scale_rounding,  # type: ignore[arg-type]
        four_over_six=spec.four_over_six,  # type: ignore[arg-type]
    )
    return {"data": codes, "scale": scales}


def given_keywords(spec: QuantSpec, make: Any = np.asarray) -> dict[str, Any]:
    """The keyword arguments `spec` and the tensors that it requires."""
    given = make(np.array([GIVEN], np.float32))
    base = spec.with_global_scale("none")
    if spec.block_size == "tensor":
        return {"spec": base, "scale": "tensor" if spec.global_scale == "tensor" else given}
    kinds = {"none": None, "given": given, "row": "row", "tensor": "tensor"}
    return {"spec": base, "global_scale": kinds[spec.global_scale]}


def _is_given(spec: QuantSpec) -> bool:
    """Whether the caller gives `scale`."""
    return spec.block_size == "tensor" and spec.global_scale == "none"


_FIELDS = ("data", "scale", "row_scale", "scale_unswizzled", "tensor_scale")


def assert_encoded(got: QuantizedTensor, y: Array, spec: QuantSpec, shape: tuple[int, ...], what: str) -> None:
    """Check that the op's result is `encoded`, with the leading dimensions of `shape`."""
    assert (got.spec, got.shape) == (spec, shape)
    expected = encoded(y, spec, GIVEN)
    for name in _FIELDS:
        value = getattr(got, name)
        if name == "scale" and _is_given(spec):
            continue
        if name not in expected:
            assert value is None, f"{name} should be None"
            continue
        wanted = expected[name]
        if name in rows_among(spec):
            wanted = wanted.reshape(*shape[:-1], wanted.shape[-1])
        assert_same_bytes(value, wanted, f"{name} of {what}")


def found_outputs(q: QuantizedTensor) -> tuple[Any, ...]:
    """The op's outputs, in the order of `encoded`."""
    scale = None if _is_given(q.spec) else q.scale
    fields = (q.data, scale, q.row_scale, q.tensor_scale, q.scale_unswizzled)
    return tuple(value for value in fields if value is not None)


def rows_among(spec: QuantSpec) -> tuple[str, ...]:
    """The fields that have the leading dimensions of the encoded tensor."""
    is_linear = spec.scale_layout == "linear" and spec.has_blocks and spec.block_rows == 1
    return ("data", "scale_unswizzled", "scale") if is_linear else ("data", "scale_unswizzled")


def assert_same_encoding(got: QuantizedTensor, other: QuantizedTensor, what: str) -> None:
    """Check that two calls returned the same bytes."""
    for name in _FIELDS:
        a, b = getattr(got, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert_same_bytes(a, b, f"{name} of {what}")
