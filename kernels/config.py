"""KernelConfig: everything that changes the generated code, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .quant_spec import QuantSpec, require_one_of

OPS = ("rmsnorm", "quantize")
INPUT_DTYPES = ("float16", "bfloat16", "float32")
VECTOR_BYTES = (1, 2, 4, 8, 16)
MAX_HIDDEN_SIZE = 262144
MAX_ROW_DIMS = 8


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A frozen, hashable description of one kernel; two equal configurations give the same source.

    The text form lists every field, ``rmsnorm:hidden_size=4096,input=bfloat16,...``; `parse` reads it back and
    lets fields with a default be left out.

    Args:
        op: what the kernel computes: ``rmsnorm``, or ``quantize`` for quantization alone.
        hidden_size: elements in a row, 1 to 262144; divisible by the block size if `quant` has one.
        input: dtype of the input: ``float16``, ``bfloat16`` or ``float32``.
        weight: dtype of the weight, the input's (the default) or ``float32``; ``none`` for ``quantize``.
        unit_bias: whether 1 is added to the weight, as Gemma does.
        residual: whether a residual is added to the input first, and the sum stored.
        quant: how the result is encoded; None writes it in the input's dtype.
        keep_norm: whether the normalized row is written in the input's dtype, too, beside its codes.
        row_dims: how many leading dimensions are left once those that one stride can walk are merged.
        vector_bytes: bytes of input that one load may read, as the tensors' addresses and strides allow.
        pdl: whether the kernel takes part in programmatic dependent launch.
        pair: whether the rows are those of two inputs, each with a weight and an output of its own; only for a plain
            ``rmsnorm``.
        batched: whether the input's first dimension counts matrices, whose scales are padded each for itself.
        masked: whether a mask says how many rows of each matrix there are, the others being left alone; only if
            `batched`.
        scale_per_matrix: whether the scale that is given, global or of FP8, has an element for each matrix; only if
            `batched`.

    Raises:
        ValueError: a field has a value that is not allowed, or not with the others.

    Example:
        >>> KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16").quant.scale_format
        'e4m3'
    """

    op: str
    hidden_size: int
    input: str = "bfloat16"
    weight: str = ""
    unit_bias: bool = False
    residual: bool = False
    quant: QuantSpec | None = None
    keep_norm: bool = False
    row_dims: int = 1
    vector_bytes: int = 16
    pdl: bool = False
    pair: bool = False
    batched: bool = False
    masked: bool = False
    scale_per_matrix: bool = False

    def __post_init__(self) -> None:
        require_one_of("op", self.op, OPS)
        if not isinstance(self.quant, QuantSpec | None):
            raise TypeError(f"quant: is {self.quant!r}; expected a QuantSpec or None")
        if not self.weight:
            object.__setattr__(self, "weight", self.input if self.normalizes else "none")
        require_one_of("input dtype", self.input, INPUT_DTYPES)
        weights = dict.fromkeys((self.input, "float32")) if self.normalizes else ("none",)
        require_one_of("weight dtype", self.weight, tuple(weights))
        require_one_of("row_dims", self.row_dims, tuple(range(1, MAX_ROW_DIMS + 1)))
        require_one_of("vector_bytes", self.vector_bytes, VECTOR_BYTES)
        self._check_hidden_size()
        if self.quant is None and (self.keep_norm or not self.normalizes):
            raise ValueError("quant: is None, but quantize and keep_norm need a QuantSpec")
        if not self.normalizes and (self.unit_bias or self.residual or self.keep_norm):
            raise ValueError("op: is 'quantize', which has no unit_bias, residual or keep_norm; use 'rmsnorm'")
        self._check_row_sets()

    @property
    def normalizes(self) -> bool:
        """Whether rows are normalized."""
        return self.op != "quantize"

    @property
    def block_size(self) -> int:
        """Elements that share a scale; 1 if scales belong to rows, to the tensor, or do not exist."""
        return self.quant.block_size if self.quant and isinstance(self.quant.block_size, int) else 1

    def _check_row_sets(self) -> None:
        if self.pair and (not self.normalizes or self.residual or self.quant or self.batched):
            raise ValueError("pair: is True, which goes with a plain rmsnorm alone, without residual, quant or batched")
        if (self.masked or self.scale_per_matrix) and not self.batched:
            raise ValueError("masked, scale_per_matrix: need batched=True")
        if self.scale_per_matrix and not (self.quant and self.quant.needs_given_scale):
            raise ValueError("scale_per_matrix: is True, but quant has no scale that is given")

    def _check_hidden_size(self) -> None:
        if type(self.hidden_size) is not int:
            raise TypeError(f"hidden_size: is {self.hidden_size!r}; expected an int")
        if not 1 <= self.hidden_size <= MAX_HIDDEN_SIZE:
            raise ValueError(
                f"{'q' if self.pair else 'input'}: its last dimension (hidden size) is {self.hidden_size}; "
                f"1 to {MAX_HIDDEN_SIZE} is supported"
            )
        if self.hidden_size % self.block_size:
            raise ValueError(
                f"input: its last dimension (hidden size) is {self.hidden_size}, "
                f"not a multiple of block_size {self.block_size}; pad the input or change block_size"
            )

    def __str__(self) -> str:
        return f"{self.op}:" + ",".join(f"{f.name}={_to_text(getattr(self, f.name))}" for f in fields(self)[1:])

    @classmethod
    def parse(cls, text: str) -> KernelConfig:
        """The KernelConfig of a text form; ValueError says what cannot be read."""
        op, _, rest = text.strip().partition(":")
        values: dict[str, Any] = {}
        for item in filter(None, rest.split(",")):
            name, equals, value = item.partition("=")
            if not equals or name not in _READERS or name in values:
                raise ValueError(
                    f"config: cannot read {item!r}; write field=value once for any of {', '.join(_READERS)}"
                )
            values[name] = _READERS[name](name, value)
        if "hidden_size" not in values:
            raise ValueError(f"config: {text!r} has no hidden_size; write for example rmsnorm:hidden_size=4096")
        return cls(op, **values)


def _to_text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _read_int(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"config: {name} is {text!r}, which is not a whole number")
    return int(text)


def _read_bool(name: str, text: str) -> bool:
    require_one_of(f"config: {name}", text, ("true", "false"))
    return text == "true"


def _read_quant(name: str, text: str) -> QuantSpec | None:
    return None if text == "none" else QuantSpec.parse(text)


_READERS: dict[str, Any] = {
    "hidden_size": _read_int,
    "input": lambda name, text: text,
    "weight": lambda name, text: text,
    "unit_bias": _read_bool,
    "residual": _read_bool,
    "quant": _read_quant,
    "keep_norm": _read_bool,
    "row_dims": _read_int,
    "vector_bytes": _read_int,
    "pdl": _read_bool,
    "pair": _read_bool,
    "batched": _read_bool,
    "masked": _read_bool,
    "scale_per_matrix": _read_bool,
}
