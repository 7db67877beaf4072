"""The largest magnitude of a tensor, which scales of the whole tensor are found from."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitnorm.dispatch import Dispatcher
from jitnorm.ops.run import run, run_named


@cache
def _dispatcher(enable_pdl: bool | None, **options: Any) -> Dispatcher:
    return Dispatcher(enable_pdl, amax_only=True, **options)


@cache
def _named_dispatcher() -> Dispatcher:
    return Dispatcher(None, op="quantize", amax_only=True, aliases={"input": "x", "amax": "out"})


def compute_amax(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """The largest magnitude of a tensor, in one launch and without a synchronization with the host.

    Args:
        x: float16, bfloat16, float32 or float8_e4m3fn, shape (..., hidden_size), 1 to 262144 elements a row; rows at
            any stride.
        out: where to write, a float32 tensor of one element on the device of `x`; None allocates.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`, shape (1,) if allocated: NaN if there is a NaN, 0 if there are no rows.

    Raises:
        ValueError: a shape, dtype, device, stride or alignment that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> compute_amax(np.array([[1, -7], [2, 3]], np.float16))
        array([7.], dtype=float32)
    """
    return run(_named_dispatcher(), (x, out), (), stream, out is None)[1]


def norm_amax(
    input: Any, weight: Any, residual: Any, eps: float, unit_bias: bool, enable_pdl: bool | None, stream: Any
) -> Any:
    """The largest magnitude of the unrounded norm; the residual is only read."""
    dispatcher = _dispatcher(enable_pdl, op="rmsnorm", residual=residual is not None, unit_bias=unit_bias)
    tensors = {"input": input, "weight": weight, "residual": residual}
    return run_named(dispatcher, tensors, (eps,), stream)["amax"]


def gated_amax(input: Any, gate_columns: int, enable_pdl: bool | None, stream: Any) -> Any:
    """The largest magnitude of the unrounded product of SwiGLU."""
    dispatcher = _dispatcher(enable_pdl, op="quantize", gate_columns=gate_columns)
    return run_named(dispatcher, {"input": input}, (), stream)["amax"]
