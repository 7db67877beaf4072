"""KernelConfig: everything that changes the generated code, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .quant_spec import QuantSpec, require_one_of

# The options that each op has; the others keep their defaults.
_OPTIONS = {
    "rmsnorm": ("unit_bias", "residual", "quant", "keep_norm"),
    "quantize": ("quant", "axis"),
    "dequantize": ("quant", "axis", "tensor_scale"),
    "interleave": ("batched",),
    "shuffle": ("shuffle_rows",),
}
OPS = tuple(_OPTIONS)
NORMS = ("rmsnorm",)
INPUT_DTYPES = ("float16", "bfloat16", "float32")
# Of ops that move elements and do not look into them.
MOVED_DTYPES = (*INPUT_DTYPES, "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fnx2")
SHUFFLE_ROWS = (16, 32)
VECTOR_BYTES = (1, 2, 4, 8, 16)
MAX_HIDDEN_SIZE = 262144
MAX_ROW_DIMS = 8


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A frozen, hashable description of one kernel; two equal configurations give the same source.

    The text form lists every field, ``rmsnorm:hidden_size=4096,input=bfloat16,...``; `parse` reads it back and
    lets fields with a default be left out.

    Args:
        op: what the kernel computes: ``rmsnorm``; ``quantize`` for quantization alone; ``dequantize`` for the inverse;
            ``interleave``, linear scales to the 128x4 layout; ``shuffle``, a permutation of rows.
        hidden_size: elements in a row, 1 to 262144; divisible by the block size if `quant` has one along the row.
        input: dtype of the values: ``float16``, ``bfloat16`` or ``float32``, of ``dequantize`` those that it writes;
            one of `MOVED_DTYPES` for ``interleave`` and ``shuffle``.
        weight: dtype of the weight, the input's (the default) or ``float32``; ``none`` for ops without one.
        unit_bias: whether 1 is added to the weight, as Gemma does.
        residual: whether a residual is added to the input first, and the sum stored.
        quant: how the result is encoded; None writes it in the input's dtype.
        keep_norm: whether the normalized row is written in the input's dtype, too, beside its codes.
        row_dims: how many leading dimensions are left once those that one stride can walk are merged.
        vector_bytes: bytes of input that one load may read, as the tensors' addresses and strides allow.
        pdl: whether the kernel takes part in programmatic dependent launch.
        axis: the dimension that blocks and codes run along, -1 or 0: 0 is for weights of two dimensions, E2M1 in the
            linear layout.
        tensor_scale: whether ``dequantize`` multiplies by a float32 tensor of one element.
        batched: whether the first dimension counts matrices, which are padded each for itself.
        shuffle_rows: rows that ``shuffle`` permutes among themselves, 16 or 32.

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
    axis: int = -1
    tensor_scale: bool = False
    batched: bool = False
    shuffle_rows: int = 0

    def __post_init__(self) -> None:
        require_one_of("op", self.op, OPS)
        if not isinstance(self.quant, QuantSpec | None):
            raise TypeError(f"quant: is {self.quant!r}; expected a QuantSpec or None")
        if not self.weight:
            object.__setattr__(self, "weight", self.input if self.normalizes else "none")
        require_one_of("input dtype", self.input, MOVED_DTYPES if self.moves else INPUT_DTYPES)
        weights = dict.fromkeys((self.input, "float32")) if self.normalizes else ("none",)
        require_one_of("weight dtype", self.weight, tuple(weights))
        require_one_of("row_dims", self.row_dims, tuple(range(1, MAX_ROW_DIMS + 1)))
        require_one_of("vector_bytes", self.vector_bytes, VECTOR_BYTES)
        require_one_of("axis", self.axis, (-1, 0))
        self._check_hidden_size()
        self._check_options()

    @property
    def normalizes(self) -> bool:
        """Whether rows are normalized."""
        return self.op in NORMS

    @property
    def moves(self) -> bool:
        """Whether elements are moved as they are."""
        return self.op in ("interleave", "shuffle")

    @property
    def is_row_wise(self) -> bool:
        """Whether the kernel works on whole rows, rather than on independent items."""
        return self.normalizes or (self.op == "quantize" and self.axis != 0)

    @property
    def block_size(self) -> int:
        """Elements that share a scale; 1 if scales belong to rows, to the tensor, or do not exist."""
        return self.quant.block_size if self.quant and isinstance(self.quant.block_size, int) else 1

    @property
    def _first(self) -> str:
        """Name of the tensor that the caller gives first."""
        if self.op == "quantize" and self.axis == 0:
            return "w"
        return {"dequantize": "data", "interleave": "unswizzled_sf", "shuffle": "input_tensor"}.get(self.op, "input")

    def _check_hidden_size(self) -> None:
        if type(self.hidden_size) is not int:
            raise TypeError(f"hidden_size: is {self.hidden_size!r}; expected an int")
        if not 1 <= self.hidden_size <= MAX_HIDDEN_SIZE:
            raise ValueError(
                f"{self._first}: its last dimension (hidden size) is {self.hidden_size}; "
                f"1 to {MAX_HIDDEN_SIZE} is supported"
            )
        if self.axis and self.hidden_size % self.block_size:
            raise ValueError(
                f"{self._first}: its last dimension (hidden size) is {self.hidden_size}, "
                f"not a multiple of block_size {self.block_size}; pad the input or change block_size"
            )

    def _check_options(self) -> None:
        for field in fields(self):
            users = [op for op in OPS if field.name in _OPTIONS[op]]
            if users and self.op not in users and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"op: is {self.op!r}, which has no {field.name}; leave it {_to_text(field.default)}, "
                    f"or use {', '.join(map(repr, users))}"
                )
        if self.op == "shuffle":
            require_one_of("shuffle_rows", self.shuffle_rows, SHUFFLE_ROWS)
        if self.quant is None and (self.keep_norm or self.op in ("quantize", "dequantize")):
            raise ValueError("quant: is None, but quantize, dequantize and keep_norm need a QuantSpec")
        if self.quant and self.op == "dequantize":
            self._check_decoding(self.quant)
        if self.quant and self.axis == 0:
            _check_columns(self.quant)

    def _check_decoding(self, quant: QuantSpec) -> None:
        if quant.both_layouts:
            raise ValueError(
                f"scale_layout: is {quant.scale_layout!r}, but dequantize reads one layout; name either of the two"
            )
        if self.tensor_scale and quant.global_scale != "none":
            raise ValueError(f"global_scale: is {quant.global_scale!r}, but with tensor_scale it must be 'none'")

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


def _check_columns(quant: QuantSpec) -> None:
    if quant.element != "e2m1" or quant.scale_layout != "linear" or quant.global_scale not in ("none", "given"):
        raise ValueError(
            f"axis: is 0, which does not go with quant {quant}; "
            "allowed are e2m1 in the linear layout, with the global scale none or given"
        )


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
    "axis": lambda name, text: -1 if text == "-1" else _read_int(name, text),
    "tensor_scale": _read_bool,
    "batched": _read_bool,
    "shuffle_rows": _read_int,
}
