"""Quantization of weights along their first dimension."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.quantizers import QUANTIZE_WEIGHT
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.kernels.quant_spec import NVFP4, QuantSpec
from jitnorm.ops.forms import Form, Kind, Known, Shape, text_of
from jitnorm.ops.general import record_of, with_kinds
from jitnorm.quantized import QuantizedTensor


def quantize_weight(
    w: Any, *, spec: QuantSpec = NVFP4, global_scale: Any = None, stream: Any = None
) -> QuantizedTensor:
    """Quantize a weight of shape (K, N) in blocks along K, the dimension over which a matrix product sums.

    Blocks are runs of a column; their numerics are those of `quantize`.

    Args:
        w: float16, bfloat16, float32 or, as in `fp4_quantize`, float8_e4m3fn, shape (K, N), K a multiple of the block
            size, N up to 262144; rows at any stride.
        spec: ``jitnorm.NVFP4`` or ``jitnorm.MXFP4``, or another format of E2M1 with linear block scales.
        global_scale: float32 tensor of one element, the encode scale, or None for 1; only with E4M3 scales.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        codes, shape (K / 2, N), where byte [j, n] holds element 2j of column n in its low nibble and 2j + 1 in its high
        one; scales, (K / block, N); `axis` is 0. `dequantize` decodes it.

    Raises:
        ValueError: a shape, dtype, device, stride or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> q = quantize_weight(np.ones((32, 3), np.float16))
        >>> q.data.shape, q.scale.shape, q.axis
        ((16, 3), (2, 3), 0)
    """
    made: QuantizedTensor = _CALLS.call(w, global_scale, stream, spec)
    return made


def _calls(shape: Shape, of_global: Kind, spec: QuantSpec) -> tuple[Dispatcher, Form]:
    if isinstance(of_global, str):
        raise ValueError(f"global_scale: is {of_global!r}; expected a float32 tensor or None")
    spec = with_kinds(spec, of_global, False)
    if spec.element != "e2m1" or spec.scale_layout != "linear" or spec.global_scale not in ("none", "given"):
        raise ValueError(f"spec: is {spec}; expected e2m1 in the linear layout, such as jitnorm.NVFP4")
    dispatcher = dispatcher_of(QUANTIZE_WEIGHT, None, spec)
    if len(shape) != 2 or shape[0] is None or shape[0] % int(spec.block_size):
        raise ValueError(f"w: shape is {text_of(shape)}; expected (K, N), K a multiple of {spec.block_size}, so pad it")
    return dispatcher, Form("w global_scale", "{record}", record_of(spec, dispatcher, "w", axis=0))


_CALLS = Known(_calls, "w@2 global_scale*")
