"""FP4 quantization alone, as FlashInfer has it: codes and scales are bytes, scales have two dimensions."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitnorm.dispatch import Allocated, Dispatcher
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.interface import Extent, padded_rows
from jitnorm.kernels.numerics import round_up
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.ops.run import run
from jitnorm.ops.sf_layout import SfLayout, layout_name

# All of FlashInfer's backends would be the same kernel here.
_BACKENDS = ("cuda", "cute-dsl")
_BASE_SCALE = 1 / (448 * 6)


@cache
def _dispatcher(
    quant: QuantSpec, inverse_global_scale: bool, enable_pdl: bool | None, input: str, global_scale: str
) -> Dispatcher:
    options: dict[str, Any] = {"op": "quantize", "quant": quant, "inverse_global_scale": inverse_global_scale}
    aliases = {"input": input, "global_scale": global_scale}
    return Dispatcher(enable_pdl, allocations=_byte_outputs, aliases=aliases, **options)


def _byte_outputs(config: KernelConfig) -> Allocated:
    """Codes and scales as FlashInfer allocates them."""
    columns = config.hidden_size // config.block_size
    swizzled = config.quant is not None and config.quant.is_swizzled
    scales: tuple[Extent, ...] = (padded_rows(config), round_up(columns, 4)) if swizzled else ("M", columns)
    return {"y_fp4": (None, "uint8"), "block_scale": (scales, "uint8")}


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

    docs/numerics.md defines every bit. The same bytes come from every GPU and from the CPU.

    Args:
        input: float16, bfloat16, float32 or float8_e4m3fn, shape (..., K), up to 262144 elements a row, divisible by
            `sf_vec_size`; rows at any stride, each contiguous.
        global_scale: float32 tensor of one element on the input's device, the encode scale (448 * 6 / amax of the
            tensor), or None for 1; with UE8M0 scales it must be None.
        sf_vec_size: values that share a scale, 16 or 32.
        sf_use_ue8m0: whether scales are powers of two, in UE8M0, rather than E4M3.
        is_sf_swizzled_layout: whether the scales have a layout that block-scaled MMA reads.
        is_sf_8x4_layout: whether that is 8x4 rather than 128x4.
        is_global_scale_inversed: whether `global_scale` is the decode scale, the inverse of the encode scale.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        backend: ``cuda`` or ``cute-dsl``, which are the same kernel here.
        nvfp4_4over6: None for one candidate scale a block; or FlashInfer's NVFP44Over6Config with ``e4m3_max=448``,
            ``err_mode="MSE"`` and ``err_use_fast_math=False`` for the better of ``amax / 6`` and ``amax / 4``.
            No environment variable is read.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``, uint8: codes two a byte, (..., K / 2); scales (M, K / sf_vec_size) or, swizzled,
        (roundup(M, 128 or 8), roundup(K / sf_vec_size, 4)) with zeros as padding.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = fp4_quantize(np.ones((2, 64), np.float16), sf_vec_size=32, sf_use_ue8m0=True)
        >>> codes.shape, scales.shape, scales[0].tolist()
        ((2, 32), (128, 4), [125, 125, 0, 0])
    """
    require_one_of("backend", backend, _BACKENDS)
    require_one_of("sf_vec_size", sf_vec_size, (16, 32))
    layout = ("8x4" if is_sf_8x4_layout else "128x4") if is_sf_swizzled_layout else "linear"
    scale_format = "ue8m0" if sf_use_ue8m0 else "e4m3"
    quant = _spec(sf_vec_size, scale_format, layout, "none" if global_scale is None else "given", nvfp4_4over6)
    is_inverse = is_global_scale_inversed and global_scale is not None
    return _quantize(input, global_scale, _dispatcher(quant, is_inverse, enable_pdl, "input", "global_scale"), stream)


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
            `per_token_activation`, ``1 / (448 * 6)``, as a number or a tensor, or None for that: there is no other base
            scale. A tensor on a GPU is waited for, a number is not.
        sfLayout: an `SfLayout`, or FlashInfer's.
        do_shuffle: must be False.
        sf_vec_size: values that share a scale, 16 or 32.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        backend: ``cuda``, ``cute-dsl`` or ``cake``, which are the same kernel here.
        per_token_activation: whether each row has a global scale of its own, found and returned.
        expanded_idx_to_permuted_idx: must be None.
        out_scale: must be None.
        nvfp4_4over6: as in `fp4_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)`` as of `fp4_quantize`, then, with `per_token_activation`, the decode scale of each row,
        float32 (M,).

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> a, linear = np.ones((2, 64), np.float16), SfLayout.layout_linear
        >>> codes, scales, row_scales = nvfp4_quantize(a, None, linear, per_token_activation=True)
        >>> codes.shape, scales.shape, row_scales.shape
        ((2, 32), (2, 4), (2,))
    """
    require_one_of("backend", backend, (*_BACKENDS, "cake"))
    require_one_of("sf_vec_size", sf_vec_size, (16, 32))
    if do_shuffle:
        raise ValueError("do_shuffle: is True, which is not supported; pass False and shuffle codes and scales")
    for name, value in (("expanded_idx_to_permuted_idx", expanded_idx_to_permuted_idx), ("out_scale", out_scale)):
        if value is not None:
            raise ValueError(f"{name}: is given, which is not supported; pass None")
    if per_token_activation:
        _check_base_scale(a_global_sf)
        global_scale, given = "row", None
    else:
        global_scale, given = "none" if a_global_sf is None else "given", a_global_sf
    quant = _spec(sf_vec_size, "e4m3", layout_name("sfLayout", sfLayout), global_scale, nvfp4_4over6)
    dispatcher = _dispatcher(quant, False, enable_pdl, "a", "a_global_sf")
    if per_token_activation:
        return run(dispatcher, (a, None, None, None), (), stream, allocates=True)[1:]
    return _quantize(a, given, dispatcher, stream)


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
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        sfLayout: an `SfLayout`, or FlashInfer's.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)`` as of `fp4_quantize`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = mxfp4_quantize(np.ones((2, 64), np.float16))
        >>> codes.shape, scales.shape
        ((2, 32), (128, 4))
    """
    require_one_of("backend", backend, _BACKENDS)
    quant = _spec(32, "ue8m0", layout_name("sfLayout", sfLayout), "none", None)
    return _quantize(a, None, _dispatcher(quant, False, enable_pdl, "a", ""), stream)


def _quantize(input: Any, global_scale: Any, dispatcher: Dispatcher, stream: Any) -> tuple[Any, Any]:
    given = () if global_scale is None else (global_scale,)
    _, codes, scales, *_ = run(dispatcher, (input, None, None, *given), (), stream, allocates=True)
    return codes, scales


@cache
def _plain_spec(block_size: int, scale_format: str, layout: str, global_scale: str, four_over_six: bool) -> QuantSpec:
    return QuantSpec("e2m1", block_size, scale_format, layout, global_scale, four_over_six=four_over_six)


def _spec(block_size: int, scale_format: str, layout: str, global_scale: str, recipe: Any) -> QuantSpec:
    four_over_six = recipe is not None and _is_four_over_six(recipe)
    return _plain_spec(block_size, scale_format, layout, global_scale, four_over_six)


def _is_four_over_six(recipe: Any) -> bool:
    """True if FlashInfer's configuration object asks for what four over six is here; else an error."""
    try:
        mode = str(getattr(recipe.err_mode, "name", recipe.err_mode)).upper()
        asked = (recipe.e4m3_max, mode, bool(recipe.err_use_fast_math))
    except AttributeError:
        raise TypeError(
            f"nvfp4_4over6: is a {type(recipe).__name__}; expected None or FlashInfer's NVFP44Over6Config"
        ) from None
    if asked != (448, "MSE", False):
        raise ValueError(
            f"nvfp4_4over6: is {recipe!r}; allowed are None and e4m3_max=448, err_mode='MSE', err_use_fast_math=False"
        )
    return True


def _check_base_scale(scale: Any) -> None:
    """Raise unless the base scale of rows is the only one that there is."""
    if scale is None:
        return
    if not isinstance(scale, (int, float)) and not hasattr(scale, "item"):
        raise TypeError(
            f"a_global_sf: is a {type(scale).__name__}; expected a number, a tensor that has item(), or None"
        )
    value = float(scale if isinstance(scale, (int, float)) else scale.item())
    if not abs(value - _BASE_SCALE) <= 1e-3 * _BASE_SCALE:
        raise ValueError(
            f"a_global_sf: is {value}; with per_token_activation only 1 / (448 * 6) is allowed; pass that or None"
        )
