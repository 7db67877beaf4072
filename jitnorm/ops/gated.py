"""SwiGLU and other gated activations, fused with quantization."""

from __future__ import annotations

from math import prod
from typing import Any

from jitnorm.catalogue.four_over_six import recipe_of
from jitnorm.catalogue.quantizers import SILU_AND_MUL_NVFP4_QUANTIZE, SILU_AND_MUL_QUANTIZE
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.interop import framework_of
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.activation import gate_columns_of
from jitnorm.ops.batched import is_scale_per_matrix, kind_of_batch
from jitnorm.ops.forms import Form, Kind, Known
from jitnorm.ops.general import encoding_form, with_kinds
from jitnorm.quantized import QuantizedTensor


def _as_matrix(codes: Any, _: Any) -> Any:
    """A view of codes with one leading dimension."""
    *leading, columns = codes.shape
    return framework_of(codes, "codes").reshaped(codes, (prod(leading), columns))


_NVFP4 = Form("input global_scale", "({y_fp4}, {block_scale})", views={"y_fp4": _as_matrix})


def silu_and_mul_quantize(
    input: Any,
    *,
    spec: QuantSpec,
    granularity: int | None = None,
    activation: str = "silu",
    values_first: bool = False,
    rounding: str = "once",
    global_scale: Any = None,
    scale: Any = None,
    batched: bool = False,
    mask: Any = None,
    scale_ub: Any = None,
    enable_pdl: bool | None = None,
    out: Any = None,
    out_scale: Any = None,
    stream: Any = None,
) -> QuantizedTensor:
    """SwiGLU, ``silu(gate) * value``, then quantization of the product, in one pass: any QuantSpec.

    `activation` selects another activation of the gates, such as GELU.

    Computing a scale for the whole tensor takes two passes: two launches, without host synchronization.

    The exponential is jitnorm's own, so that its bits agree on every target; docs/numerics.md defines it.

    Args:
        input: float16, bfloat16 or float32, shape (..., 2 * hidden_size), gates and values; rows at any stride.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``.
        granularity: how many columns of gates alternate with as many columns of values; it divides the hidden size.
            None: all gates come first.
        activation: of the gates: ``"silu"``, ``"gelu"`` (by erf), ``"gelu_tanh"``, ``"relu2"``, or ``"swigluoai"`` for
            what `swigluoai_and_mul` computes (gpt-oss has its gates and values interleaved, at a granularity of 1). Or
            with parameters, each choice of which has its own kernel: ``"swish:1.702"``, ``gate * sigmoid(1.702 *
            gate)``; ``"fatrelu:0.5"``, as `fatrelu_and_mul`; ``"swiglu:7:1.702:1"``, as `silu_and_mul_with_clamp` with
            that limit, alpha and beta.
        values_first: whether values come before gates, as in `mul_and_silu`.
        rounding: what is rounded to the input's dtype before the product is encoded: nothing (``once``); the product
            (``output``), which gives the same result as the activation followed by `quantize`; or also the activation
            of the gate (``hf`` or ``vllm``), as in torch step by step.
        global_scale: ``"row"`` for one computed for each row, ``"tensor"`` for one computed for the tensor; a float32
            tensor of one element, the encode scale; None for none. Only with block scales in e4m3.
        scale: if `spec.block_size` is ``tensor``, a float32 tensor of one element, the divisor, or ``"tensor"`` to
            compute it; or the scales of rows, columns, groups or blocks, as in `norm_quantize`.
        batched: whether the first dimension counts matrices, as in `norm_quantize`.
        mask: how many rows each matrix has, as in `norm_quantize`.
        scale_ub: the upper bound of the amax of each FP8 or INT8 scale, as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        out: where to write the codes, as in `norm_quantize`.
        out_scale: where to write the computed scales, as in `norm_quantize`.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales of a (..., hidden_size) tensor, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> q = silu_and_mul_quantize(np.ones((2, 64), np.float16), spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape, q.shape
        ((2, 32), (2, 1), (2, 32))
    """
    gate_columns = gate_columns_of(granularity)
    per_matrix = batched and is_scale_per_matrix(scale if global_scale is None else global_scale)
    made: QuantizedTensor = _CALLS.call(
        input, out, out_scale, global_scale, scale, mask, scale_ub, stream, spec, enable_pdl, rounding, batched,
        per_matrix, gate_columns, activation, values_first,
    )  # fmt: skip
    return made


def _calls(
    gives_scale: bool, of_global: Kind, of_scale: Kind, masked: bool, has_bound: bool, spec: QuantSpec,
    enable_pdl: bool | None, rounding: str, batched: bool, per_matrix: bool, gate_columns: int, activation: str,
    values_first: bool,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of the calls of `silu_and_mul_quantize` with such options, and their form."""
    spec = with_kinds(spec, of_global, of_scale)
    batch = kind_of_batch(spec, batched, masked, per_matrix)
    dispatcher = rounded_dispatcher(
        SILU_AND_MUL_QUANTIZE, enable_pdl, rounding, spec, gate_columns, activation, values_first, has_bound, batch
    )
    return dispatcher, encoding_form(spec, dispatcher, "mask scale_ub", gives_scale=gives_scale, batched=batched)


_CALLS = Known(_calls, "input out out_scale? global_scale* scale* mask? scale_ub?")


def silu_and_mul_nvfp4_quantize(
    input: Any,
    global_scale: Any,
    sf_vec_size: int = 16,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
    enable_pdl: bool | None = None,
    nvfp4_4over6: Any = None,
    *,
    rounding: str = "once",
    stream: Any = None,
) -> tuple[Any, Any]:
    """SwiGLU, then NVFP4 quantization of the product, in one pass, as in FlashInfer.

    `silu_and_mul_quantize` does the same for every format and layout.

    Args:
        input: float16, bfloat16, float32 or float8_e4m3fn, shape (..., 2 * K), with K gates and then K values in each
            row, K divisible by `sf_vec_size`; rows at any stride.
        global_scale: float32 tensor of one element on the input's device, the encode scale (448 * 6 / amax of the
            product), or None for 1.
        sf_vec_size: values that share a scale, 16 or 32.
        is_sf_swizzled_layout: whether the scales are swizzled for block-scaled MMA.
        is_sf_8x4_layout: whether the swizzled layout is 8x4 instead of 128x4.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        nvfp4_4over6: None, or as in `fp4_quantize`.
        rounding: as in `silu_and_mul_quantize`; FlashInfer uses ``output``.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``, uint8: codes, two per byte, (M, K / 2), where M is the product of the leading dimensions;
        scales as for `fp4_quantize`.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> codes, scales = silu_and_mul_nvfp4_quantize(np.ones((3, 2, 128), np.float16), None)
        >>> codes.shape, scales.shape
        ((6, 32), (128, 4))
    """
    made: tuple[Any, Any] = _NVFP4_CALLS.call(
        input, global_scale, stream, enable_pdl, rounding, sf_vec_size, is_sf_swizzled_layout, is_sf_8x4_layout,
        recipe_of(nvfp4_4over6),
    )  # fmt: skip
    return made


def calls_of_nvfp4(has_scale: bool, enable_pdl: bool | None, rounding: str, *options: Any) -> tuple[Dispatcher, Form]:
    """The dispatcher of the calls of `silu_and_mul_nvfp4_quantize` with such options, and their form."""
    return rounded_dispatcher(SILU_AND_MUL_NVFP4_QUANTIZE, enable_pdl, rounding, *options, has_scale), _NVFP4


_NVFP4_CALLS = Known(calls_of_nvfp4, "input global_scale?")
