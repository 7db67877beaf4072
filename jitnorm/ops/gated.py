"""SwiGLU fused with quantization."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitnorm.dispatch import Dispatcher
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.amax import gated_amax
from jitnorm.ops.batched import batch_options
from jitnorm.ops.general import QuantizedTensor, quantized, with_scales
from jitnorm.ops.run import run_named


@cache
def _dispatcher(quant: QuantSpec, gate_columns: int, enable_pdl: bool | None, **options: Any) -> Dispatcher:
    return Dispatcher(enable_pdl, op="quantize", quant=quant, gate_columns=gate_columns, **options)


def silu_and_mul_quantize(
    input: Any,
    *,
    spec: QuantSpec,
    granularity: int | None = None,
    global_scale: Any = None,
    scale: Any = None,
    batched: bool = False,
    mask: Any = None,
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> QuantizedTensor:
    """SwiGLU, ``silu(gate) * value``, then quantization of the unrounded product, in one pass: any QuantSpec.

    A scale that is found for the whole tensor takes two passes, two launches without a synchronization with the host.

    The exponential is jitnorm's own, so that its bits agree on every target; docs/numerics.md defines it.

    Args:
        input: float16, bfloat16 or float32, shape (..., 2 * hidden_size), gates and values; rows at any stride.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")`` or ``jitnorm.MXFP8``.
        granularity: how many columns of gates stand before as many of values, in turns; it divides the hidden size.
            None: all gates come first.
        global_scale: ``"row"`` for one that is found for each row, ``"tensor"`` for one that is found for the tensor; a
            float32 tensor of one element, the encode scale; None for none. Only with block scales in e4m3.
        scale: if `spec.block_size` is ``tensor``, a float32 tensor of one element, the divisor, or ``"tensor"`` for
            one that is found.
        batched: whether the first dimension counts matrices, as in `norm_quantize`.
        mask: how many rows of each matrix there are, as in `norm_quantize`.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        the codes and scales of a (..., hidden_size) tensor, allocated in the input's framework.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.

    Example:
        >>> import numpy as np
        >>> q = silu_and_mul_quantize(np.ones((2, 64), np.float16), spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> q.data.shape, q.scale.shape, q.shape
        ((2, 32), (2, 1), (2, 32))
    """
    if granularity is not None and (type(granularity) is not int or granularity < 1):
        raise ValueError(f"granularity: is {granularity!r}; expected None or a positive integer")
    spec, given, scale = with_scales(spec, global_scale, scale)
    batch = batch_options(spec, batched, mask, scale if given is None else given)
    gate_columns = -1 if granularity is None else granularity
    amax = gated_amax(input, gate_columns, enable_pdl, stream) if spec.needs_tensor_amax else None
    dispatcher = _dispatcher(spec, gate_columns, enable_pdl, **batch)
    tensors = {"input": input, "mask": mask, "global_scale": given, "scale": scale, "amax": amax}
    made = run_named(dispatcher, tensors, (), stream)
    return quantized(spec, made, (*input.shape[:-1], input.shape[-1] // 2), batched)
