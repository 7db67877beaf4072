"""QuantizedTensor: codes and scales, and how they encode a tensor's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jitnorm.forks import no_fork
from jitnorm.interop import framework_of
from jitnorm.kernels.quant_spec import CODE_BITS, QuantSpec

if TYPE_CHECKING:
    from jitnorm.scaled_mm import ScaledMmOperand

TENSORS = ("data", "scale", "global_scale", "row_scale", "scale_unswizzled", "tensor_scale", "amax")


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedTensor:
    """A quantized tensor, complete: consumers need nothing else.

    Two are equal if they encode the same shape in the same way with the same bytes, regardless of framework and device;
    comparing copies all bytes to the host. It can be pickled, and is a node in JAX's and torch's pytrees.

    Args:
        data: the codes: E2M1 two per byte, element 2i in the low nibble; FP8 and INT8 one per byte.
        scale: the scales in the layout that `spec` names: of the blocks, of the M rows, (M,), or of the tensor, given
            or computed.
        global_scale: the given encode scale, or None.
        row_scale: the decode scale of each row, float32 (M,), if `spec.global_scale` is ``row``, else None.
        scale_unswizzled: the scales in the linear layout, if `spec` has both layouts, else None.
        spec: how the values are encoded.
        shape: the logical shape, in values.
        batched: whether the first dimension counts matrices, whose scales are padded each for itself.
        tensor_scale: the computed decode scale of the tensor, float32 (1,), if its block scales have one
            (`spec.global_scale` is ``tensor``), else None.
        amax: the largest magnitude of the tensor, float32 (1,), if a scale was computed from it, else None.
        axis: the dimension that blocks and codes run along: -1, or 0 for weights from `quantize_weight`.

    Example:
        >>> import numpy as np
        >>> from jitnorm import quantize
        >>> x = np.full((2, 64), 6, np.float16)
        >>> q = quantize(x, spec=QuantSpec("e2m1", 16, "e4m3"))
        >>> q
        QuantizedTensor(e2m1/16/e4m3/linear/none, shape=(2, 64), data=uint8 (2, 32), scale=float8_e4m3fn (2, 4))
        >>> bool((q.dequantize() == x).all()), q == quantize(x.astype(np.float32), spec=q.spec)
        (True, True)
    """

    data: Any
    scale: Any
    global_scale: Any
    row_scale: Any
    scale_unswizzled: Any
    spec: QuantSpec
    shape: tuple[int, ...]
    batched: bool = False
    tensor_scale: Any = None
    amax: Any = None
    axis: int = -1

    def dequantize(self, *, dtype: str | None = None, out: Any = None) -> Any:
        """Decode the values, as `jitnorm.dequantize` does."""
        from jitnorm.ops.dequantize import dequantize  # it builds on this module

        return dequantize(self, dtype=dtype, out=out)

    def to(self, device: Any) -> QuantizedTensor:
        """Copy it to another device of its framework.

        Args:
            device: the framework's kind of device: for torch a `torch.device` or its name, for JAX a `jax.Device`.

        Raises:
            TypeError: arrays of the framework cannot be moved.
        """
        held = {name: tensor for name in TENSORS if (tensor := getattr(self, name)) is not None}
        return replace(self, **{name: framework_of(each, name).moved(each, device) for name, each in held.items()})

    def scaled_mm_operand(self, *, is_weight: bool = False) -> ScaledMmOperand:
        """An operand of `torch.nn.functional.scaled_mm`; see `jitnorm.scaled_mm.operand_of`."""
        from jitnorm.scaled_mm import operand_of  # torch is loaded only when needed

        return operand_of(self, is_weight=is_weight)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantizedTensor):
            return NotImplemented
        if _kind_of(self) != _kind_of(other):
            return False
        return all(_bytes_of(getattr(self, name), name) == _bytes_of(getattr(other, name), name) for name in TENSORS)

    # Tensors can change.
    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        leaves, kind = leaves_of(self)
        pickled = [None if each is None else _pickled(each, name) for name, each in zip(TENSORS, leaves, strict=True)]
        return unpickled, (tuple(pickled), kind)

    def __repr__(self) -> str:
        named = {name: getattr(self, name) for name in TENSORS}
        tensors = "".join(f", {name}={_described(each)}" for name, each in named.items() if each is not None)
        batched = ", batched=True" if self.batched else ""
        axis = "" if self.axis == -1 else f", axis={self.axis}"
        return f"QuantizedTensor({self.spec}, shape={tuple(self.shape)}{batched}{axis}{tensors})"


def assembled(attributes: dict[str, Any]) -> QuantizedTensor:
    """Create a QuantizedTensor of all its attributes, without the constructor of a frozen class, which takes 1.3 us."""
    if type(attributes["data"]) not in _introduced:
        introduce(attributes["data"])
    made = object.__new__(QuantizedTensor)
    vars(made).update(attributes)
    return made


def leaves_of(q: QuantizedTensor) -> tuple[list[Any], tuple[str, int, bool]]:
    """A quantized tensor as a tree node: its tensors, or None in their place, then the rest."""
    return [getattr(q, name) for name in TENSORS], (str(q.spec), q.axis, q.batched)


def of_leaves(leaves: Sequence[Any], kind: tuple[str, int, bool]) -> QuantizedTensor:
    """The inverse of `leaves_of`; a tree function may have replaced the leaves."""
    text, axis, batched = kind
    spec = QuantSpec.parse(text)
    named = dict(zip(TENSORS, leaves, strict=True))
    shape = list(getattr(named["data"], "shape", ()))
    if shape:
        shape[axis] *= 8 // CODE_BITS[spec.element]
    return QuantizedTensor(spec=spec, shape=tuple(shape), batched=batched, axis=axis, **named)


# The types of tensors whose framework knows QuantizedTensor.
_introduced: set[type] = set()


def introduce(tensor: Any) -> None:
    """Register QuantizedTensor with the tree and file functions of a tensor's framework."""
    framework = framework_of(tensor, "tensor")
    with no_fork():  # also keeps threads from registering it twice, which frameworks refuse
        framework.register_node(QuantizedTensor, leaves_of, of_leaves)
    framework.allow_unpickling(unpickled)
    _introduced.add(type(tensor))


def _pickled(tensor: Any, name: str) -> tuple[Any, str]:
    """A tensor, as bytes if its library cannot pickle its dtype, and the dtype."""
    framework = framework_of(tensor, name)
    return framework.pickled(tensor), framework.dtype_name(tensor)


def unpickled(leaves: Sequence[tuple[Any, str] | None], kind: tuple[str, int, bool]) -> QuantizedTensor:
    """Restore a pickled quantized tensor from its tensors with their dtypes, and the rest."""
    pairs = zip(TENSORS, leaves, strict=True)
    tensors = [None if leaf is None else framework_of(leaf[0], name).unpickled(*leaf) for name, leaf in pairs]
    return of_leaves(tensors, kind)


def _kind_of(q: QuantizedTensor) -> tuple[object, ...]:
    """Everything that two equal quantized tensors share besides bytes."""
    shapes = [None if tensor is None else tuple(tensor.shape) for tensor in (getattr(q, name) for name in TENSORS)]
    return q.spec, tuple(q.shape), q.batched, q.axis % len(q.shape), shapes


def _bytes_of(tensor: Any, name: str) -> bytes:
    try:
        return b"" if tensor is None else framework_of(tensor, name).to_bytes(tensor)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _described(tensor: Any) -> str:
    """The dtype and shape of a tensor; for anything else, as within a tree function, its type."""
    shape = getattr(tensor, "shape", None)
    return type(tensor).__name__ if shape is None else f"{str(tensor.dtype).rpartition('.')[2]} {tuple(shape)}"
