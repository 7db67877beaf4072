"""FP4 quantization alone, as in FlashInfer: codes and scales are bytes, and scales have two dimensions."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.four_over_six import recipe_of
from jitnorm.catalogue.op import Op
from jitnorm.catalogue.quantizers import FP4_QUANTIZE, MXFP4_QUANTIZE, NVFP4_QUANTIZE
from jitnorm.catalogue.sf_layout import SfLayout
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.interop import check_shaped, framework_of, kind_of
from jitnorm.kernels.numerics import round_up
from jitnorm.ops.forms import Form, Known
from jitnorm.ops.layout import shuffle_matrix_a, shuffle_matrix_sf_a

_SHUFFLE_TILE = 128  # FlashInfer's epilogue_tile_m for do_shuffle
_FORM = Form("input global_scale", "({y_fp4}, {block_scale})")
_WITH_ROW_SCALES = Form("input global_scale", "({y_fp4}, {block_scale}, {row_scale})")


def fp4_quantize(
    input: Any,
    global_scale: Any = None,
    sf_vec_size: int = 16,
    sf_use_ue8m0: bool = False,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    is_global_scale_inversed: bool = False,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    nvfp4_4over6: Any = None,
    *,
    stream: Any = None,
) -> tuple[Any, Any]:
    """FP4 quantization: blocks of 16 or 32 E2M1 codes with scales in E4M3 (NVFP4) or UE8M0 (MXFP4).

    A scale is ``amax / 6`` of its block, times the global scale, rounded to E4M3, or up to a power of two.
    docs/encodings.md defines every bit. The same bytes come from every GPU and from the CPU. MXFP4 is that of the Open
    Compute Project, "OCP Microscaling Formats (MX) Specification" (2023), NVFP4 that of NVIDIA's Blackwell GPUs.

    Args:
        input: float16, bfloat16, float32 or float8_e4m3fn, shape (..., K), up to 262144 elements per row, divisible by
            `sf_vec_size`; rows at any stride, each contiguous. With a global scale, a float8_e4m3fn input is treated as
            a tensor quantized to FP8 with the scale ``amax / 448``, that is ``6 / global_scale``, and its values are
            encoded.
        global_scale: float32 tensor of one element on the input's device, the encode scale (448 * 6 / amax of the
            tensor), or None for 1; with UE8M0 scales it must be None.
        sf_vec_size: values that share a scale, 16 or 32.
        sf_use_ue8m0: whether scales are powers of two, in UE8M0, rather than E4M3.
        is_sf_swizzled_layout: whether the scales are swizzled for block-scaled MMA.
        is_sf_8x4_layout: whether the swizzled layout is 8x4 instead of 128x4.
        is_global_scale_inversed: whether `global_scale` is the decode scale, the inverse of the encode scale.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        backend: ``cuda`` or ``cute-dsl``, which are the same kernel here.
        nvfp4_4over6: None for one candidate scale per block; or FlashInfer's NVFP44Over6Config for the better of ``amax
            / 6`` and ``amax / 4``, by the error that it names, always in float32. A given global scale already implies
            its `e4m3_max`. No environment variable is read.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``, uint8: codes two per byte, (..., K / 2); scales of M rows in all, (M, K / sf_vec_size) or,
        swizzled, (roundup(M, 128 or 8), roundup(K / sf_vec_size, 4)) padded with zeros.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = fp4_quantize(np.ones((2, 64), np.float16), sf_vec_size=32, sf_use_ue8m0=True)
        >>> codes.shape, scales.shape, scales[0].tolist()
        ((2, 32), (128, 4), [125, 125, 0, 0])
    """
    made: tuple[Any, Any] = _CALLS.call(
        input, global_scale, stream, FP4_QUANTIZE, enable_pdl, sf_vec_size, sf_use_ue8m0, is_sf_swizzled_layout,
        is_sf_8x4_layout, is_global_scale_inversed, backend, recipe_of(nvfp4_4over6), global_scale is not None,
    )  # fmt: skip
    return made


def nvfp4_quantize(
    a: Any,
    a_global_sf: Any,
    sfLayout: Any = SfLayout.layout_128x4,  # noqa: N803 - FlashInfer's name
    do_shuffle: bool = False,
    sf_vec_size: int = 16,
    enable_pdl: bool | None = None,
    backend: str = "cuda",
    per_token_activation: bool = False,
    expanded_idx_to_permuted_idx: Any = None,
    out_scale: Any = None,
    nvfp4_4over6: Any = None,
    *,
    stream: Any = None,
) -> tuple[Any, ...]:
    """NVFP4 quantization: blocks of E2M1 codes with scales in E4M3.

    Args:
        a: as the input of `fp4_quantize`.
        a_global_sf: float32 tensor of one element on the device of `a`, the encode scale, or None for 1. With
            `per_token_activation`, the base scale, as a number or a tensor: ``1 / (m * 6)`` makes the largest scale of
            each row m, up to 448. None means 448, or what `nvfp4_4over6` says. Each base scale has its own kernel. A
            tensor on a GPU causes a synchronization, a number does not.
        sfLayout: an `SfLayout` or FlashInfer's.
        do_shuffle: whether the rows of codes, 128x4 scales and row scales are then permuted, as by `shuffle_matrix_a`
            and `shuffle_matrix_sf_a` for an epilogue tile of 128. `a` must then be (M, K), with M divisible by 128.
        sf_vec_size: values that share a scale, 16 or 32.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        backend: ``cuda``, ``cute-dsl`` or ``cake``, which are the same kernel here.
        per_token_activation: whether each row has its own global scale, which is computed and returned.
        expanded_idx_to_permuted_idx: must be None; `quantize` gathers rows, and `jitnorm.compat.flashinfer` supports
            this argument.
        out_scale: must be None.
        nvfp4_4over6: as in `fp4_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)`` as of `fp4_quantize`, then, with `per_token_activation`, the decode scale of each row,
        float32 (M,).

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> a, linear = np.ones((2, 64), np.float16), SfLayout.layout_linear
        >>> codes, scales, row_scales = nvfp4_quantize(a, None, linear, per_token_activation=True)
        >>> codes.shape, scales.shape, row_scales.shape
        ((2, 32), (2, 4), (2,))
    """
    for name, value in (("expanded_idx_to_permuted_idx", expanded_idx_to_permuted_idx), ("out_scale", out_scale)):
        if value is not None:
            raise ValueError(f"{name}: is given, which is not supported; pass None")
    recipe = recipe_of(nvfp4_4over6)
    if per_token_activation:
        global_scale, given, e4m3_max = "row", None, largest_scale(a_global_sf)
    else:
        global_scale, given, e4m3_max = "none" if a_global_sf is None else "given", a_global_sf, None
    options = (sfLayout, do_shuffle, sf_vec_size, backend, global_scale, recipe, e4m3_max)
    if do_shuffle:
        dispatcher_of(NVFP4_QUANTIZE, enable_pdl, *options)  # raises its errors first
        _check_shuffle(a)
    made: tuple[Any, ...] = _CALLS.call(a, given, stream, NVFP4_QUANTIZE, enable_pdl, *options)
    return _shuffled(*made, stream=stream) if do_shuffle else made


def mxfp4_quantize(
    a: Any,
    backend: str = "cuda",
    enable_pdl: bool | None = None,
    sfLayout: Any = SfLayout.layout_128x4,  # noqa: N803 - FlashInfer's name
    *,
    stream: Any = None,
) -> tuple[Any, Any]:
    """MXFP4 quantization: blocks of 32 E2M1 codes with scales in UE8M0.

    Args:
        a: as the input of `fp4_quantize`.
        backend: ``cuda`` or ``cute-dsl``, which are the same kernel here.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        sfLayout: an `SfLayout` or FlashInfer's.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)`` as of `fp4_quantize`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = mxfp4_quantize(np.ones((2, 64), np.float16))
        >>> codes.shape, scales.shape
        ((2, 32), (128, 4))
    """
    made: tuple[Any, Any] = _CALLS.call(a, None, stream, MXFP4_QUANTIZE, enable_pdl, backend, sfLayout)
    return made


def _calls(op: Op, *options: Any) -> tuple[Dispatcher, Form]:
    """The dispatcher of an op's calls with such options, and their form."""
    dispatcher = dispatcher_of(op, *options)
    return dispatcher, _WITH_ROW_SCALES if "row_scale" in dispatcher.names else _FORM


_CALLS = Known(_calls, "input global_scale")


def _check_shuffle(a: Any) -> None:
    check_shaped(a, "a")
    shape = tuple(a.shape)
    if len(shape) != 2 or shape[0] % _SHUFFLE_TILE:
        raise ValueError(f"a: shape is {shape}; with do_shuffle expected (M, K), M a multiple of {_SHUFFLE_TILE}")


def _shuffled(codes: Any, scales: Any, *row_scale: Any, stream: Any) -> tuple[Any, ...]:
    """Permute codes, linear block scales and any row scales; return the block scales in the 128x4 layout."""
    framework = framework_of(codes, "codes")
    rows = codes.shape[0]
    columns = [
        shuffle_matrix_a(framework.reshaped(scale, (rows, 1)), _SHUFFLE_TILE, stream=stream) for scale in row_scale
    ]
    swizzled = shuffle_matrix_sf_a(scales, _SHUFFLE_TILE, stream=stream)
    return (
        shuffle_matrix_a(codes, _SHUFFLE_TILE, stream=stream),
        framework.reshaped(swizzled, (rows, round_up(scales.shape[1], 4))),
        *(framework.reshaped(column, (rows,)) for column in columns),
    )


def largest_scale(scale: Any) -> float | None:
    """The largest block scale of a row for a base scale; None for the recipe's."""
    if scale is None:
        return None
    if not isinstance(scale, (int, float)) and not hasattr(scale, "item"):
        raise TypeError(f"a_global_sf: is {kind_of(scale)}; expected a number, a tensor that has item(), or None")
    try:
        value = float(scale if isinstance(scale, (int, float)) else scale.item())
    except RuntimeError as error:
        raise TypeError(f"a_global_sf: has no value: {error}") from None
    largest = 1 / (6 * value) if value > 0 else 0.0
    # The usual base scales may be rounded to few digits.
    largest = next((usual for usual in (448, 256) if abs(largest - usual) <= 1e-3 * usual), largest)
    if not 2**-9 <= largest <= 448:
        raise ValueError(
            f"a_global_sf: is {value}; with per_token_activation 1 / (m * 6) is allowed for m from 2**-9 to 448; "
            "pass that or None"
        )
    return largest
