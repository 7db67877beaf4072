"""The sum over ranks, with a residual, a norm and an encoding in the same launch."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from jitnorm.catalogue.all_reduce import ALL_REDUCE_NORM_QUANTIZE
from jitnorm.comm.workspace import Workspace
from jitnorm.dispatch import rounded_dispatcher
from jitnorm.interop import check_shaped
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of
from jitnorm.ops.general import NO_OUTPUTS, quantized, with_scales
from jitnorm.ops.run import run

METHODS = ("auto", "one_shot")


class Reduced(NamedTuple):
    """What `all_reduce_norm_quantize` gives.

    Attributes:
        out: the norm, as a tensor like the input or, with a `spec`, as a `QuantizedTensor`.
        residual_out: the sum with the residual, rounded to the input's dtype; None without a residual.
        norm: with `keep_norm` what `out` encodes, rounded to the input's dtype; otherwise None.
    """

    out: Any
    residual_out: Any
    norm: Any


def all_reduce_norm_quantize(
    input: Any,
    weight: Any,
    workspace: Workspace,
    *,
    spec: QuantSpec | None = None,
    norm: str = "rmsnorm",
    residual: Any = None,
    bias: Any = None,
    global_scale: Any = None,
    scale: Any = None,
    eps: float = 1e-06,
    unit_bias: bool = False,
    keep_norm: bool = False,
    scale_ub: Any = None,
    rounding: str = "once",
    method: str = "auto",
    enable_pdl: bool | None = None,
    stream: Any = None,
) -> Reduced:
    """Sum inputs over ranks, add a residual, normalize and encode: in one launch, with the same bits on every rank.

    The sum is that of float32, in the order of ranks; docs/numerics.md defines every bit. All ranks make the same call,
    with inputs of their own and all other values alike. No input is written.

    Args:
        input: float16, bfloat16 or float32, shape (..., hidden_size), on the device of the workspace; rows at any
            stride.
        weight: as in `norm_quantize`; of ``layernorm``, float32.
        workspace: that of this rank.
        spec: how to encode, as in `norm_quantize`; None writes the norm in the input's dtype.
        norm: ``rmsnorm`` or ``layernorm``.
        residual: like the input, or None; added to the sum.
        bias: as in `norm_quantize`; of ``layernorm``, given with every weight.
        global_scale: as in `norm_quantize`, but not ``"tensor"``.
        scale: as in `norm_quantize`, but not ``"tensor"``.
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight, as Gemma does.
        keep_norm: whether what is encoded is returned itself, too.
        scale_ub: as in `norm_quantize`.
        rounding: as in `norm_quantize`; the sum over ranks is never rounded by itself.
        method: ``one_shot``: every rank gets the rows of all; ``auto``: the fastest.
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU can.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        `Reduced`.

    Raises:
        CommError: a rank failed in a call before.
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is no tensor of a known framework.
    """
    require_one_of("method", method, METHODS)
    require_one_of("norm", norm, ("rmsnorm", "layernorm"))
    framework = check_shaped(input, "input")
    shape = tuple(input.shape)
    workspace.admit(prod(shape[:-1]), shape[-1], framework.dtype_name(input))
    given = None
    if spec is not None:
        spec, given, scale = with_scales(spec, global_scale, scale)
    dispatcher = rounded_dispatcher(
        ALL_REDUCE_NORM_QUANTIZE, enable_pdl, rounding, "one_shot", workspace.ranks, norm, spec, residual is not None,
        unit_bias, bias is not None, keep_norm, scale_ub is not None, weight is not None,
    )  # fmt: skip
    tensors = {
        **NO_OUTPUTS, "input": input, "workspace": workspace.control(input), "residual": residual, "weight": weight,
        "gemma": weight, "bias": bias, "beta": bias, "global_scale": given, "scale": scale, "scale_ub": scale_ub,
        "residual_out": None, "y_out": None, "eps": eps,
    }  # fmt: skip
    made = run(dispatcher, tensors, stream)
    if workspace.is_synchronous:
        workspace.check()
    out = made["out"] if spec is None else quantized(spec, made, shape)
    return Reduced(out, made["residual_out"], made["y_out"])
