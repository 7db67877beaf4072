"""The largest magnitude of a tensor, from which its scales are computed."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.quantizers import COMPUTE_AMAX
from jitnorm.dispatch import Dispatcher, dispatcher_of
from jitnorm.interop.form import Step
from jitnorm.kernels.numerics import AMAX_PARTS
from jitnorm.ops.forms import Form, Known


def compute_amax(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """The largest magnitude of a tensor, in two launches and without host synchronization.

    Args:
        x: float16, bfloat16, float32 or float8_e4m3fn, shape (..., hidden_size), 1 to 262144 elements per row; rows at
            any stride.
        out: where to write, a float32 tensor of one element on the device of `x`; None allocates.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `out`, shape (1,) if allocated: NaN if there is a NaN, 0 if there are no rows.

    Raises:
        ValueError: a shape, dtype, device, stride or alignment that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> compute_amax(np.array([[1, -7], [2, 3]], np.float16))
        array([7.], dtype=float32)
    """
    return _CALLS.call(x, out, stream)


def _calls() -> tuple[Dispatcher, Form]:
    of_parts, of_all = (dispatcher_of(COMPUTE_AMAX, None, count) for count in (AMAX_PARTS, 1))
    steps = Step(of_parts, {"amax": "parts"}), Step(of_all, {"input": "parts"})
    return of_parts, Form("input amax", "{amax}", steps=steps)


_CALLS = Known(_calls, "input amax")
