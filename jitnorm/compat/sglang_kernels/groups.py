"""SGLang's kernels of FP8 and INT8 with a scale for each group of a row."""

from __future__ import annotations

from functools import partial

import torch

import jitnorm
from jitnorm.compat.arguments import as_scale, element_of, spec_of, spec_of_codes
from jitnorm.compat.groups import quantize_groups, quantize_groups_into, spec_of_eps, write_groups
from jitnorm.kernels.numerics import ceil_div, round_up
from jitnorm.kernels.quant_spec import MAX_CODE, PACKED_COLUMNS
from jitnorm.quantized import QuantizedTensor

_LEAST_AMAX = 1e-10
_ROUNDINGS = {"legacy": "hf", "dense": "output"}
_MLA_ROWS = 256


def per_token_group_quant(
    input: torch.Tensor,
    output_q: torch.Tensor | None = None,
    output_s: torch.Tensor | None = None,
    group_size: int = 128,
    scale_ue8m0: bool = False,
    fuse_silu_and_mul: bool = False,
    masked_m: torch.Tensor | None = None,
    expected_m: int | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    column_major_scales: bool = False,
    sorted_token_ids: torch.Tensor | None = None,
    num_tokens_post_padded: torch.Tensor | None = None,
    num_valid_tokens: int = 0,
    silu_and_mul_mode: str = "legacy",
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 or INT8 with a scale for each group of a row, with an amax of at least 1e-10.

    Args:
        input: float16, bfloat16 or float32, (rows, hidden_size) or (experts, rows, hidden_size), or twice as wide if
            `fuse_silu_and_mul`.
        output_q: where to write the codes, float8_e4m3fn or int8; None allocates, also scales.
        output_s: where to write the scales: float32 (..., groups), or int32 (..., groups / 4, rounded up) with the
            exponents of four groups in each element; row-major or column-major and TMA-aligned. Torch copies row-major
            exponents, of all rows.
        group_size: 16, 32, 48, 64, 96, 128 or 256.
        scale_ue8m0: whether scales are exponents of powers of two.
        fuse_silu_and_mul: whether the input has gates and values, of which SwiGLU is quantized.
        masked_m: int32 (experts,), how many rows each expert has; None: all.
        expected_m: ignored; affects only SGLang's grid.
        out_dtype: of allocated codes, float8_e4m3fn for None; otherwise it must be that of `output_q`.
        column_major_scales: whether allocated scales are column-major.
        sorted_token_ids: ignored: says which rows are padding, which may be skipped.
        num_tokens_post_padded: likewise.
        num_valid_tokens: likewise.
        silu_and_mul_mode: ``legacy`` rounds the SiLU and the product, ``dense`` only the product.

    Returns:
        ``(output_q, output_s)``.

    Raises:
        ValueError: an argument that is not allowed.
    """
    if silu_and_mul_mode not in _ROUNDINGS:
        raise ValueError(f"silu_and_mul_mode: is {silu_and_mul_mode!r}; allowed are {', '.join(_ROUNDINGS)}")
    if (output_q is None) != (output_s is None):
        raise ValueError("output_q, output_s: one is given; pass both or neither")
    if output_q is None or output_s is None:
        shape = (*input.shape[:-1], input.shape[-1] // 2 if fuse_silu_and_mul else input.shape[-1])
        output_q = input.new_empty(shape, dtype=out_dtype or torch.float8_e4m3fn)
        output_s = empty_scales(output_q, group_size, scale_ue8m0, column_major_scales)
    elif out_dtype not in (None, output_q.dtype):
        raise ValueError(f"out_dtype: is {out_dtype}, but output_q is {output_q.dtype}; pass that, or None")
    if scale_ue8m0 != (output_s.dtype == torch.int32):
        raise ValueError(
            f"scale_ue8m0: is {scale_ue8m0}, but output_s is {output_s.dtype}; pass True with int32, and False with "
            "float32"
        )
    rounding = _ROUNDINGS[silu_and_mul_mode] if fuse_silu_and_mul else None
    write_rows(input, output_q, output_s, group_size, scale_ue8m0, rounding, masked_m)
    return output_q, output_s


def empty_scales(
    codes: torch.Tensor, group_size: int, is_packed: bool, is_column: bool, is_aligned: bool = True
) -> torch.Tensor:
    """Uninitialized scales for codes: float32, or int32 for exponents of four groups; column-major ones with gaps.

    Args:
        codes: for which.
        group_size: columns that share a scale.
        is_packed: whether exponents are stored.
        is_column: whether they are column-major.
        is_aligned: whether columns begin at multiples of 4 rows.
    """
    *batch, rows, columns = codes.shape
    count = ceil_div(columns // group_size, PACKED_COLUMNS) if is_packed else columns // group_size
    dtype = torch.int32 if is_packed else torch.float32
    if not is_column:
        return codes.new_empty((*batch, rows, count), dtype=dtype)
    height = round_up(rows, 4) if is_aligned else rows
    return codes.new_empty((*batch, count, height), dtype=dtype).transpose(-1, -2)[..., :rows, :]


def per_token_group_quant_8bit_v2(
    input: torch.Tensor,
    output_q: torch.Tensor,
    output_s: torch.Tensor,
    group_size: int,
    eps: float,
    min_8bit: float,
    max_8bit: float,
    scale_ue8m0: bool = False,
    fuse_silu_and_mul: bool = False,
    masked_m: torch.Tensor | None = None,
) -> None:
    """`per_token_group_quant` into the caller's tensors, where powers of two may also be float32.

    `eps`, `min_8bit` and `max_8bit` must be those of SGLang's kernel: 1e-10 and the range of codes.
    """
    element = element_of(output_q.dtype, "output_q")
    if eps != _LEAST_AMAX:
        raise ValueError(f"eps: is {eps!r}; allowed is {_LEAST_AMAX}")
    if max_8bit != MAX_CODE[element]:
        raise ValueError(f"max_8bit: is {max_8bit!r}; allowed is {MAX_CODE[element]}, that of {output_q.dtype}")
    rounding = "hf" if fuse_silu_and_mul else None
    write_rows(input, output_q, output_s, group_size, scale_ue8m0, rounding, masked_m)


def write_rows(
    input: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, group_size: int, is_power: bool,
    rounding: str | None, mask: torch.Tensor | None, eps: float = _LEAST_AMAX,
) -> None:  # fmt: skip
    """Encode groups with an amax of at least `eps` into the caller's tensors.

    Args:
        input: rows, or a batch of matrices.
        codes: where to write the codes.
        scales: where to write the scales.
        group_size: columns that share a scale.
        is_power: whether scales are powers of two.
        rounding: of SwiGLU, which is then encoded; None: the input itself is.
        mask: how many rows each matrix has; None: all.
        eps: the least amax.
    """
    is_batch = codes.ndim == 3
    spec = spec_of_eps(element_of(codes.dtype, "output_q"), group_size, eps, is_power, least_power=0.0)
    if rounding is None and mask is None and not is_batch:
        quantize_groups_into(input, spec, codes, scales)
        return
    encode = partial(jitnorm.quantize, input)
    if rounding is not None:
        encode = partial(jitnorm.silu_and_mul_quantize, input, rounding=rounding)
    write_groups(partial(encode, batched=is_batch, mask=mask), spec, codes, scales, is_batch)


def sglang_per_token_group_quant_int8(
    x: torch.Tensor, group_size: int, eps: float = 1e-10, dtype: torch.dtype = torch.int8
) -> tuple[torch.Tensor, torch.Tensor]:
    """INT8 with a scale for each group of a row, with an amax of at least `eps`."""
    return quantize_groups(x, dtype, group_size, eps)


def act_quant(
    x: torch.Tensor, block_size: int = 128, scale_fmt: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with a float32 scale for each group of a row, with an amax of at least 1e-4.

    With a `scale_fmt`, scales are powers of two.
    """
    q = jitnorm.quantize(x, spec=spec_of("e4m3", block_size, "f32" if scale_fmt is None else "f32_ue8m0"))
    return q.data, q.scale


def per_token_group_quant_mla_deep_gemm_masked_fp8(
    x: torch.Tensor, group_size: int = 128, eps: float = 1e-12, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int]:
    """FP8 with column-major scales for each group of a row, for DeepGEMM's masked form, with room for further rows.

    Args:
        x: (B, rows, hidden_size).
        group_size: 16, 32, 48, 64, 96, 128 or 256.
        eps: the least amax of a group.
        dtype: of codes, float8_e4m3fn.

    Returns:
        ``(codes, scales, counts, rows, padded rows)``: codes (B, padded rows, hidden_size) and float32 scales (B,
        padded rows, groups), uninitialized where there is no row; how many there are, int32 (B,). Rows are padded to a
        multiple of 256; torch copies scales if that is more rows.
    """
    batch, rows, columns = x.shape
    padded = round_up(rows, _MLA_ROWS)
    codes = x.new_empty((batch, padded, columns), dtype=dtype)
    scales = x.new_empty((batch, columns // group_size, padded), dtype=torch.float32)
    spec = spec_of_eps(element_of(dtype, "dtype"), group_size, eps, layout="column")
    out_scale = scales if rows == padded else None
    q = jitnorm.quantize(x, spec=spec, batched=True, out=codes[:, :rows], out_scale=out_scale)
    if out_scale is None:
        scales[..., :rows].copy_(q.scale)
    counts = torch.full((batch,), rows, dtype=torch.int32, device=x.device)
    return codes, scales.transpose(1, 2), counts, rows, padded


def fp8_wo_a_group_major_quant_ue8m0(input: torch.Tensor, output_q: torch.Tensor, output_s: torch.Tensor) -> None:
    """FP8 with a power of two for each 128 of a row, with an amax of at least 1e-10; scales are grouped by head.

    Args:
        input: (tokens, heads, size).
        output_q: where to write the codes, float8_e4m3fn, like the input.
        output_s: where to write the exponents of powers of two, four in each element: contiguous int32 (heads, size /
            512, tokens), with the last dimension rounded up to a multiple of 4.
    """
    spec = spec_of_eps("e4m3", 128, _LEAST_AMAX, True, "packed", 0.0)
    jitnorm.quantize(input.transpose(0, 1), spec=spec, batched=True, out=output_q.transpose(0, 1), out_scale=output_s)


def sglang_per_token_group_quant_fp8_dsv4_wo_a(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`fp8_wo_a_group_major_quant_ue8m0`: codes, and a view of the scales, int32 (tokens, heads, size / 512)."""
    tokens, heads, size = x.shape
    codes = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    columns = ceil_div(size // 128, PACKED_COLUMNS)
    scales = x.new_empty((heads, columns, round_up(tokens, 4)), dtype=torch.int32)
    fp8_wo_a_group_major_quant_ue8m0(x, codes, scales)
    return codes, scales.permute(2, 0, 1)[:tokens]


def dequant_group_fp8_to_bf16(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Values in bfloat16 of FP8 codes with a float32 scale for each 32 of a row; torch copies scales with gaps."""
    return _decoded(x, "scale", scale, 32, "bfloat16")


def fp8_per_token_to_per_tensor_quant_triton(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    masked_m: torch.Tensor,
    output_scale: torch.Tensor,
    output: torch.Tensor,
    expected_rows: int | None = None,
) -> None:
    """FP8 with one scale instead of one for each 128 of a row; all rows are decoded to float32 in between.

    Args:
        x: codes, float8_e4m3fn (experts, rows, hidden_size).
        x_scale: float32 (experts, rows, hidden_size / 128), row-major or column-major; torch copies those with gaps.
        masked_m: int32 (experts,), how many rows each expert has; the others are not written.
        output_scale: float32, one element.
        output: where to write the codes, float8_e4m3fn, like `x`.
        expected_rows: ignored; affects only SGLang's grid.
    """
    spec = spec_of_codes(output.dtype, "output", "tensor")
    values = _decoded(x, "x_scale", x_scale, 128, "float32")
    jitnorm.quantize(values, spec=spec, scale=as_scale(output_scale, x), batched=True, mask=masked_m, out=output)


def _decoded(codes: torch.Tensor, name: str, scales: torch.Tensor, group_size: int, dtype: str) -> torch.Tensor:
    """Values of FP8 codes with float32 scales of groups.

    Raises:
        ValueError: the scales have another shape.
    """
    expected = (*codes.shape[:-1], codes.shape[-1] // group_size)
    if scales.shape != expected:
        raise ValueError(f"{name}: shape is {tuple(scales.shape)}; expected {expected}")
    columns = scales.transpose(-1, -2)
    is_column = columns.is_contiguous() and not scales.is_contiguous()
    spec = spec_of("e4m3", group_size, "f32", "column" if is_column else "linear")
    kept = columns if is_column else scales.contiguous()
    q = QuantizedTensor(codes, kept, None, None, None, spec, tuple(codes.shape), batched=is_column and codes.ndim == 3)
    values: torch.Tensor = jitnorm.dequantize(q, dtype=dtype)
    return values
