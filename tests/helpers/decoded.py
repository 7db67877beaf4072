"""Encodings with arbitrary bytes, and their expected decodings, from the NumPy reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from encoded import GIVEN, encoded, given_keywords, hidden_size_of, rows_among, rows_of
from jitnorm.kernels.quant_spec import QuantSpec
from numpy.typing import NDArray

from jitnorm import QuantizedTensor, quantize_weight
from jitnorm.reference import (
    dequantize_fp4,
    dequantize_fp8,
    dequantize_fp8_block,
    dequantize_int8,
    dequantize_mxfp8,
    unswizzle_scales,
)

Array = NDArray[Any]

E2M1_SPECS = [
    QuantSpec("e2m1", block, scale_format, "linear", global_scale)
    for block, scale_format, global_scale in (
        (16, "e4m3", "none"), (16, "e4m3", "given"), (32, "e4m3", "given"), (16, "ue8m0", "none"), (32, "ue8m0", "none")
    )
]  # fmt: skip


def any_encoding(spec: QuantSpec, leading: tuple[int, ...], seed: int = 0, hidden_size: int = 0) -> QuantizedTensor:
    """Codes and scales with arbitrary bytes, including NaN; the padding must not matter."""
    size = hidden_size or hidden_size_of(spec)
    fields: dict[str, Any] = encoded(np.ones((math.prod(leading), size), np.float32), spec, GIVEN)
    given = np.array([GIVEN], np.float32)
    if spec.block_size == "tensor" and "scale" not in fields:
        fields["scale"] = given
    for name in rows_among(spec):
        if name in fields:
            fields[name] = fields[name].reshape(*leading, fields[name].shape[-1])
    others = {name: fields.get(name) for name in ("row_scale", "scale_unswizzled", "tensor_scale")}
    global_scale = given if spec.global_scale == "given" else None
    q = QuantizedTensor(fields["data"], fields["scale"], global_scale, spec=spec, shape=(*leading, size), **others)
    return _with_any_bytes(q, np.random.default_rng(seed))


def any_weight(spec: QuantSpec, shape: tuple[int, int], seed: int = 0) -> QuantizedTensor:
    """The same, along the first dimension."""
    keywords = given_keywords(spec)
    return _with_any_bytes(quantize_weight(np.ones(shape, np.float16), **keywords), np.random.default_rng(seed))


def _with_any_bytes(q: QuantizedTensor, generator: np.random.Generator) -> QuantizedTensor:
    def filled(name: str) -> Array | None:
        array = getattr(q, name)
        if array is None:
            return None
        bits = np.dtype(f"u{array.dtype.itemsize}")
        return generator.integers(0, 2 ** (8 * bits.itemsize), array.shape, bits).view(array.dtype)

    names = ("data", "scale", "row_scale", "tensor_scale", "scale_unswizzled")
    return replace(q, **{name: filled(name) for name in names})


def decoded(q: QuantizedTensor) -> Array:
    """The expected result of `dequantize`, float32, in the shape of `q`."""
    if q.axis == 0:
        turned = replace(q, data=q.data.T, scale=q.scale.T, shape=q.shape[::-1], axis=-1)
        return decoded(turned).T
    if q.spec.element == "int8":
        rows = rows_of(q.data)
        return dequantize_int8(rows, _float_scales(q, len(rows))).reshape(q.shape)
    codes = rows_of(_bytes(q.data))
    if q.spec.block_rows > 1:
        return dequantize_fp8_block(codes, q.scale).reshape(q.shape)
    if q.spec.scale_format.startswith("f32"):
        scales = _float_scales(q, len(codes))
        return dequantize_fp8(codes, scales, q.spec.element).reshape(q.shape)  # type: ignore[arg-type]
    scales = _byte_scales(q, len(codes))
    if q.spec.element == "e4m3":
        return dequantize_mxfp8(codes, scales).reshape(q.shape)
    y = dequantize_fp4(
        codes,
        scales,
        block_size=int(q.spec.block_size),
        scale_format=q.spec.scale_format,  # type: ignore[arg-type]
        global_scale=None if q.global_scale is None else float(q.global_scale[0]),
        decode_scale=q.tensor_scale if q.row_scale is None else q.row_scale,
    )
    return y.reshape(q.shape)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8)


def _byte_scales(q: QuantizedTensor, rows: int) -> Array:
    columns = q.shape[-1] // int(q.spec.block_size)
    if q.spec.is_swizzled and not q.spec.both_layouts:
        return unswizzle_scales(_bytes(q.scale), rows, columns, q.spec.scale_layout)  # type: ignore[arg-type]
    linear = q.scale_unswizzled if q.spec.both_layouts else q.scale
    return _bytes(linear).reshape(rows, columns)


def _float_scales(q: QuantizedTensor, rows: int) -> Array:
    if q.spec.block_size == "tensor":
        return np.asarray(q.scale).reshape(1)
    if q.spec.is_packed:
        bytes_of = np.ascontiguousarray(np.asarray(q.scale)[:, :rows].T).view(np.uint8)
        exponents = bytes_of[:, : q.shape[-1] // int(q.spec.block_size)].astype(np.int32)
        return np.where(exponents == 255, np.nan, np.ldexp(1.0, exponents - 127)).astype(np.float32)
    if q.spec.is_column_major:
        return np.ascontiguousarray(q.scale[:, :rows].T)
    groups = q.shape[-1] // q.spec.block_size if isinstance(q.spec.block_size, int) else 1
    return np.asarray(q.scale).reshape(rows, groups)


FLOAT_DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
