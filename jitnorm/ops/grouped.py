"""Quantization of experts' rows, which follow one another, starting at given offsets."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.experts import GROUPED_QUANTIZE, SILU_AND_MUL_GROUPED_QUANTIZE
from jitnorm.catalogue.op import Op
from jitnorm.dispatch import Dispatcher, rounded_dispatcher
from jitnorm.kernels.config_rules import MAX_EXPERTS
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.ops.activation import gate_columns_of
from jitnorm.ops.batched import is_per_matrix
from jitnorm.ops.forms import Form, Kind, Known, Shape, text_of
from jitnorm.ops.general import as_column, with_kinds, written_names


def grouped_quantize(
    input: Any,
    offsets: Any,
    *,
    spec: QuantSpec,
    scale_offsets: Any = None,
    input_rows: Any = None,
    activation: str | None = None,
    rounding: str = "once",
    global_scale: Any = None,
    scale: Any = None,
    enable_pdl: bool | None = None,
    out: Any = None,
    out_scale: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Quantization of experts' rows for a grouped GEMM: each expert gets the same bytes as on its own.

    Experts' rows follow one another in one matrix; so do their codes. Linear scales are stored by row. In a swizzled
    layout, each expert's scales begin with a new tile, padded with zeros.

    Offsets are read on the device; whatever their values, nothing outside of the tensors is touched. They are clamped
    to the existing rows, and an expert that ends before it begins has no rows. Rows and tiles that belong to no expert
    are not written, and stay uninitialized in allocated outputs. Where experts overlap, it is undefined whose bytes
    are written.

    Args:
        input: float16, bfloat16, float32 or float8_e4m3fn, shape (M, hidden_size); rows at any stride.
        offsets: int32, shape (E + 1,), on the device of `input`: expert e has the rows from ``offsets[e]`` to
            ``offsets[e + 1]``. Kernels are built for one E, up to 1024.
        spec: how to encode, such as ``jitnorm.NVFP4.with_layout("128x4")``; its layout is linear or swizzled, or both.
        scale_offsets: with a swizzled layout, int32, shape (E + 1,): the scales of expert e begin at row
            ``scale_offsets[e]``, rounded down to a multiple of a tile's rows, 128 or 8. For example, the cumulative sum
            of the experts' rows, each rounded up to whole tiles. None with linear scales.
        input_rows: int32, shape (N,): row i is computed from row ``input_rows[i]`` of the input, as in `quantize`, and
            offsets count these N rows: tokens are sorted by expert as they are read. None: from row i.
        activation: activation of the input, as in `quantize`; None for none.
        rounding: rounding of the activation, as in `quantize`.
        global_scale: a float32 tensor, the encode scale: one element for all, or shape (E,), one for each expert;
            ``"row"`` for one computed for each row; None for none. Only with block scales in e4m3.
        scale: if `spec.block_size` is ``tensor``, the divisor, a float32 tensor of one element or of shape (E,).
        enable_pdl: whether to use programmatic dependent launch; None: wherever the GPU supports it.
        out: where to write the codes; rows at any stride. None allocates.
        out_scale: where to write the computed scales, of any shape with as many elements as are returned. None
            allocates.
        stream: CUDA stream (an integer or a stream object); None: the caller's current one.

    Returns:
        ``(codes, scales)``; codes as in `quantize`, scales in the linear layout too, swizzled ones of shape (R,
        roundup(hidden_size / block size, 4)), where R is ``ceil(M / T) + E`` tiles of T rows (with N in place of M for
        `input_rows`), enough for any offsets without gaps. Then the linear scales, if `spec` asks for both layouts, and
        the decode scales of rows, if `global_scale` is ``row``.

    Raises:
        ValueError: a shape, dtype, device, stride, alignment or option that is not allowed.
        TypeError: an argument that is not a tensor of a supported framework.
        ToolchainMissingError: the kernel is not cached and no compiler for it is installed.

    Example:
        >>> import numpy as np
        >>> x, offsets, tiles = np.ones((200, 64), np.float16), [0, 130, 130, 200], [0, 256, 256, 384]
        >>> borders = {"offsets": np.array(offsets, np.int32), "scale_offsets": np.array(tiles, np.int32)}
        >>> codes, scales = grouped_quantize(x, **borders, spec=QuantSpec("e2m1", 16, "e4m3", "128x4"))
        >>> codes.shape, scales.shape
        ((200, 32), (640, 4))
    """
    rows = None if input_rows is None else as_column(input_rows)
    made: tuple[Any, ...] = _CALLS.call(
        input, out, out_scale, global_scale, scale, offsets, scale_offsets, rows, stream, spec, GROUPED_QUANTIZE,
        enable_pdl, rounding, activation or "",
    )  # fmt: skip
    return made


def silu_and_mul_grouped_quantize(
    input: Any,
    offsets: Any,
    *,
    spec: QuantSpec,
    scale_offsets: Any = None,
    granularity: int | None = None,
    activation: str = "silu",
    rounding: str = "once",
    global_scale: Any = None,
    scale: Any = None,
    enable_pdl: bool | None = None,
    out: Any = None,
    out_scale: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """SwiGLU, ``silu(gate) * value``, then what `grouped_quantize` does, in one pass.

    Arguments, results and errors are the same, except for `input`, whose shape is (M, 2 * hidden_size), and for
    `granularity`, `activation` and `rounding`, which are as in `silu_and_mul_quantize`.

    Example:
        >>> import numpy as np
        >>> x, offsets = np.ones((200, 64), np.float16), np.array([0, 130, 130, 200], np.int32)
        >>> codes, scales = silu_and_mul_grouped_quantize(x, offsets, spec=QuantSpec("e4m3", 32, "ue8m0"))
        >>> codes.shape, scales.shape
        ((200, 32), (200, 1))
    """
    made: tuple[Any, ...] = _CALLS.call(
        input, out, out_scale, global_scale, scale, offsets, scale_offsets, None, stream, spec,
        SILU_AND_MUL_GROUPED_QUANTIZE, enable_pdl, rounding, activation, gate_columns_of(granularity),
    )  # fmt: skip
    return made


def calls_of_experts(
    gives_scale: bool, global_scale: Kind, scale: Kind, offsets: Shape, has_offsets: bool,
    gathers: bool, spec: QuantSpec, op: Op, enable_pdl: bool | None, rounding: str, activation: str, *columns: int,
) -> tuple[Dispatcher, Form]:  # fmt: skip
    """The dispatcher of an op's calls with such options, and their form."""
    spec = with_kinds(spec, global_scale, scale)
    per_expert = is_per_matrix(scale if global_scale is False else global_scale)
    _check_scale_offsets(spec, has_offsets)
    options = (True,) if gathers else columns
    dispatcher = rounded_dispatcher(
        op, enable_pdl, rounding, spec, activation, _experts_of(offsets), per_expert, *options
    )
    written = written_names(spec, gives_scale)
    found = ("block_scale", "block_scale_unswizzled", "row_scale", "scale")
    results = (written.partition(" ")[0], *(name for name in found if name in dispatcher.names))
    return dispatcher, Form(
        f"input {written} global_scale scale offsets scale_offsets input_rows",
        f"({', '.join(f'{{{name}}}' for name in results)})",
    )


_CALLS = Known(calls_of_experts, "input out out_scale? global_scale*@8 scale*@8 offsets@1 scale_offsets? input_rows?")


def _experts_of(offsets: Shape) -> int:
    ends = offsets[0] if len(offsets) == 1 else None
    if ends is None or not 1 < ends <= MAX_EXPERTS + 1:
        raise ValueError(f"offsets: shape is {text_of(offsets)}, expected (E + 1,) for 1 to {MAX_EXPERTS} experts")
    return ends - 1


def _check_scale_offsets(spec: QuantSpec, has_offsets: bool) -> None:
    if spec.is_swizzled and not has_offsets:
        raise ValueError(
            f"scale_offsets: is None, but scales are in the layout {spec.scale_layout}; say where those of each "
            "expert begin"
        )
    if not spec.is_swizzled and has_offsets:
        raise ValueError("scale_offsets: is given, but linear scales belong to their row; pass None")
