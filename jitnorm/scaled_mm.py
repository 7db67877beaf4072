"""Operands of `torch.nn.functional.scaled_mm`, torch's GEMM of quantized matrices; imports torch, so import it late."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.functional import ScalingType, SwizzleType

from jitnorm.kernels.quant_spec import CODE_BITS

if TYPE_CHECKING:
    from jitnorm.quantized import QuantizedTensor

# By bits per code, block size and scale format.
_RECIPES = {
    (8, "tensor", "f32"): ScalingType.TensorWise,
    (8, "row", "f32"): ScalingType.RowWise,
    (8, 128, "f32"): ScalingType.BlockWise1x128,
    (8, 128, "f32_ue8m0"): ScalingType.BlockWise1x128,
    (8, "128x128", "f32"): ScalingType.BlockWise128x128,
    (8, "128x128", "f32_ue8m0"): ScalingType.BlockWise128x128,
    (8, 32, "ue8m0"): ScalingType.BlockWise1x32,
    (4, 16, "e4m3"): ScalingType.BlockWise1x16,
}
# What the number of 128 x 128 blocks in a row is rounded up to.
_BLOCKS_PER_ROW = 4
_DTYPES = {"ue8m0": torch.float8_e8m0fnu, "e4m3": torch.float8_e4m3fn}


class ScaledMmOperand(NamedTuple):
    """One side of a GEMM, as `torch.nn.functional.scaled_mm` takes it.

    Attributes:
        matrix: the codes: (M, K), or (K, N) for a weight.
        scale: the decode scales, one tensor for each level.
        recipe: what the scales of each level belong to.
        swizzle: the layout of the scales of each level.
    """

    matrix: torch.Tensor
    scale: list[torch.Tensor]
    recipe: list[ScalingType]
    swizzle: list[SwizzleType]


def operand_of(q: QuantizedTensor, *, is_weight: bool = False) -> ScaledMmOperand:
    """Convert a quantized tensor to an operand of `torch.nn.functional.scaled_mm`.

    Codes are never copied. Scales are copied if they belong to blocks of 128 x 128, or if they belong to 128 values and
    are not column-major: quantize with the layout ``column`` to avoid it. Torch multiplies a matrix of blocks of 128 x
    128 by one of groups of 128. GPUs before Blackwell only multiply FP8 with float32 scales.

    Args:
        q: in torch, of shape (..., K), not batched; the leading dimensions become M rows. MXFP8 and NVFP4 need the
            scale layout ``128x4``; blocks of 128 x 128 must be whole.
        is_weight: whether `q` is a weight (N, K), the second operand, which torch takes as (K, N).

    Returns:
        the operand.

    Raises:
        TypeError: `q` is not in torch.
        ValueError: an encoding, a scale layout or a shape that torch has no GEMM for.

    Example:
        >>> import jitnorm, torch
        >>> x, w = torch.ones(16, 64, dtype=torch.bfloat16), torch.ones(32, 64, dtype=torch.bfloat16)
        >>> a = jitnorm.quantize(x, spec=jitnorm.FP8_TOKEN).scaled_mm_operand()
        >>> b = jitnorm.quantize(w, spec=jitnorm.FP8_TOKEN).scaled_mm_operand(is_weight=True)
        >>> y = torch.nn.functional.scaled_mm(a.matrix, b.matrix, a.scale, a.recipe, b.scale, b.recipe)
        >>> y.shape, float(y[0, 0])
        (torch.Size([16, 32]), 64.0)
    """
    if not isinstance(q.data, torch.Tensor):
        raise TypeError(f"q: is of {type(q.data).__module__}; scaled_mm takes tensors of torch")
    if q.batched or q.axis % len(q.shape) != len(q.shape) - 1:
        raise ValueError(
            "q: is batched, or its blocks run along its first dimension; scaled_mm takes rows of one matrix"
        )
    recipe = _RECIPES.get((CODE_BITS[q.spec.element], q.spec.block_size, q.spec.scale_format))
    is_readable = q.spec.element != "int8" and not q.spec.is_packed
    if recipe is None or not is_readable or (q.row_scale is not None and q.spec.has_blocks):
        raise ValueError(
            f"q: is encoded as {q.spec}; torch multiplies FP8 with scales of the tensor, of rows, of 128 values or of "
            "blocks of 128 x 128, MXFP8, and NVFP4 without a global scale of each row"
        )
    matrix = q.data.reshape(-1, q.data.shape[-1])
    if q.spec.element == "e2m1":
        matrix = matrix.view(torch.float4_e2m1fn_x2)
    if q.spec.scale_format in _DTYPES:
        scale, swizzle = _swizzled(q), SwizzleType.SWIZZLE_32_4_4
    else:
        scale, swizzle = _scale(q, recipe, len(matrix), is_weight), SwizzleType.NO_SWIZZLE
    matrix = matrix.t() if is_weight else matrix
    of_tensor = _scale_of_tensor(q)
    if of_tensor is None:
        return ScaledMmOperand(matrix, [scale], [recipe], [swizzle])
    levels = [recipe, ScalingType.TensorWise], [swizzle, SwizzleType.NO_SWIZZLE]
    return ScaledMmOperand(matrix, [scale, of_tensor], *levels)


def _scale(q: QuantizedTensor, recipe: ScalingType, rows: int, is_weight: bool) -> torch.Tensor:
    """The float32 scales."""
    scale: torch.Tensor = q.scale
    if recipe is ScalingType.RowWise:
        return scale.reshape(1, -1) if is_weight else scale.reshape(-1, 1)
    if recipe is ScalingType.BlockWise1x128:
        by_column = scale[:, :rows] if q.spec.is_column_major else scale.reshape(rows, -1).t()
        return by_column.contiguous().t()
    if recipe is ScalingType.BlockWise128x128:
        if any(size % q.spec.block_rows for size in (rows, q.shape[-1])):
            raise ValueError(f"q: its shape is {tuple(q.shape)}; scaled_mm takes whole blocks of 128 x 128, so pad it")
        blocks = scale.reshape(rows // q.spec.block_rows, -1)
        return torch.nn.functional.pad(blocks, (0, -blocks.shape[1] % _BLOCKS_PER_ROW)).t()
    return scale


def _swizzled(q: QuantizedTensor) -> torch.Tensor:
    """The scales of blocks in the layout of tensor cores."""
    if q.spec.scale_layout.removeprefix("linear+") != "128x4":
        raise ValueError(
            f"q: has the scale layout {q.spec.scale_layout!r}; scaled_mm reads '128x4': quantize with "
            "spec.with_layout('128x4')"
        )
    return q.scale.view(_DTYPES[q.spec.scale_format])


def _scale_of_tensor(q: QuantizedTensor) -> torch.Tensor | None:
    """The tensor's decode scale in addition to those of blocks, if there is one."""
    if q.global_scale is not None:
        return q.global_scale.reciprocal()
    return q.tensor_scale if q.spec.has_blocks else None
