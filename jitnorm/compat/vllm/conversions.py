"""vLLM's conversions to INT8 and MXFP8, and from and to FP8."""

from __future__ import annotations

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, given_spec, spec_of

# A scale has an amax of at least this.
_LEAST_AMAX = 1e-10
_ELEMENTS = {"fp8": "e4m3", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2"}
_CODES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def per_token_quant_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """INT8 with a scale for each row: codes, and float32 scales (..., 1)."""
    q = jitnorm.quantize(x, spec=spec_of("int8", "row", scale_floor=_LEAST_AMAX / 127))
    return q.data, q.scale.view(*x.shape[:-1], 1)


def mxfp8_e4m3_quantize(
    x: torch.Tensor, is_sf_swizzled_layout: bool = False, alignment: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP8: codes, and scales as bytes.

    Args:
        x: (M, K) or (B, M, K), K divisible by 32.
        is_sf_swizzled_layout: whether scales have the 128x4 layout, that of each matrix separately.
        alignment: what K is rounded up to a multiple of, with zeros; 0 for K itself. Only for linear scales or a
            matrix.

    Returns:
        the codes, and the scales, (..., K / 32) or, swizzled, flat.
    """
    if x.ndim not in (2, 3):
        raise ValueError(f"x: has {x.ndim} dimensions; allowed are 2 and 3")
    if x.ndim == 3 and is_sf_swizzled_layout:
        if alignment and x.shape[-1] % alignment:
            raise ValueError(f"alignment: is {alignment}, but the rows of x, (B, M, K), have {x.shape[-1]} elements")
        q = jitnorm.quantize(x, spec=jitnorm.MXFP8.with_layout("128x4"), batched=True)
        return q.data, q.scale.view(-1)
    codes, scales = jitnorm.mxfp8_quantize(x, is_sf_swizzled_layout, alignment or 32)
    return codes, scales if is_sf_swizzled_layout else scales.view(*x.shape[:-1], codes.shape[-1] // 32)


def convert_fp8(output: torch.Tensor, input: torch.Tensor, scale: float = 1.0, kv_dtype: str = "fp8") -> None:
    """Encode floats as FP8, ``input / scale``, or decode them, ``input * scale``; `output` says which.

    Args:
        output: where to write: uint8 or FP8, or floats.
        input: the other one.
        scale: a number or a tensor of one element.
        kv_dtype: ``"fp8"``, which is ``"fp8_e4m3"``, or ``"fp8_e5m2"``.
    """
    element, divisor = fp8_element("kv_dtype", kv_dtype), as_scale(scale, input).reshape(1)
    if output.dtype in _FLOATS and input.element_size() == 1:
        decode_fp8(input, divisor, output, element)
    elif input.dtype in _FLOATS and output.element_size() == 1:
        encode_fp8(input, divisor, element, output)
    else:
        raise ValueError(f"output, input: are {output.dtype}, {input.dtype}; expected bytes or FP8, and floats")


def fp8_element(name: str, kv_dtype: str) -> str:
    """The element format of a cache's dtype.

    Raises:
        ValueError: it is not FP8.
    """
    if kv_dtype not in _ELEMENTS:
        raise ValueError(f"{name}: is {kv_dtype!r}; allowed are {', '.join(_ELEMENTS)}")
    return _ELEMENTS[kv_dtype]


def encode_fp8(x: torch.Tensor, divisor: torch.Tensor, element: str, out: torch.Tensor | None = None) -> torch.Tensor:
    """FP8 of values times the reciprocal of a divisor; `out` may be of bytes."""
    codes = None if out is None else out.view(_CODES[element])
    return jitnorm.quantize(x, spec=given_spec(element, "tensor"), scale=divisor, out=codes).data


def decode_fp8(codes: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, element: str) -> None:
    """Write FP8 codes, or bytes, times a scale."""
    spec, data = given_spec(element, "tensor"), codes.view(_CODES[element])
    q = jitnorm.QuantizedTensor(data, scale, None, None, None, spec, tuple(codes.shape))
    jitnorm.dequantize(q, out=out)
