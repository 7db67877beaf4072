"""KernelConfig: everything that changes the generated code, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .quant_spec import QuantSpec, require_one_of

# The options that each op has; the others keep their defaults.
_COMBINED = ("residual", "gate_columns", "streams")
_OPTIONS = {
    "rmsnorm": (*_COMBINED, "unit_bias", "quant", "keep_norm", "keep_rstd"),
    "layernorm": (*_COMBINED, "quant", "keep_norm", "keep_rstd"),
    "quantize": ("gate_columns", "streams", "quant", "axis"),
    "dequantize": ("quant", "axis", "tensor_scale"),
    "interleave": ("batched",),
    "shuffle": ("shuffle_rows",),
}
OPS = tuple(_OPTIONS)
NORMS = ("rmsnorm", "layernorm")
INPUT_DTYPES = ("float16", "bfloat16", "float32")
# Of ops that move elements and do not look into them.
MOVED_DTYPES = (*INPUT_DTYPES, "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fnx2")
SHUFFLE_ROWS = (16, 32)
VECTOR_BYTES = (1, 2, 4, 8, 16)
MAX_HIDDEN_SIZE = 262144
MAX_ROW_DIMS = 8
MAX_STREAMS = 4


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """A frozen, hashable description of one kernel; two equal configurations give the same source.

    The text form, ``rmsnorm:hidden_size=4096,input=bfloat16,...``, lists the fields up to `pdl`, and of the later ones
    those that are not at their default; `parse` reads it back and lets every field with a default be left out.

    Args:
        op: what the kernel computes: ``rmsnorm``, ``layernorm``; ``quantize`` for quantization alone, ``dequantize``
            for the inverse; ``interleave``, linear scales to the 128x4 layout; ``shuffle``, a permutation of rows.
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
        gate_columns: for SwiGLU, how many columns of gates stand before as many of values, in turns, in an input of
            twice the hidden size; the hidden size itself, or -1 for it, if the halves follow each other; 0 without.
        streams: for hyper-connections (mHC), how many rows, 1 to 4, are mixed into one; 0 without.
        keep_rstd: whether the reciprocal root mean square of each row is written, too.
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
    gate_columns: int = 0
    streams: int = 0
    keep_rstd: bool = False
    axis: int = -1
    tensor_scale: bool = False
    batched: bool = False
    shuffle_rows: int = 0

    def __post_init__(self) -> None:
        require_one_of("op", self.op, OPS)
        if not isinstance(self.quant, QuantSpec | None):
            raise TypeError(f"quant: is {self.quant!r}; expected a QuantSpec or None")
        if not self.weight:
            object.__setattr__(self, "weight", self._default_weight)
        require_one_of("input dtype", self.input, MOVED_DTYPES if self.moves else INPUT_DTYPES)
        require_one_of("weight dtype", self.weight, tuple(dict.fromkeys((self._default_weight, self._wide_weight))))
        require_one_of("row_dims", self.row_dims, tuple(range(1, MAX_ROW_DIMS + 1)))
        require_one_of("vector_bytes", self.vector_bytes, VECTOR_BYTES)
        require_one_of("axis", self.axis, (-1, 0))
        self._check_hidden_size()
        self._check_options()
        self._check_combine()

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
    def _default_weight(self) -> str:
        return {"rmsnorm": self.input, "layernorm": "float32"}.get(self.op, "none")

    @property
    def _wide_weight(self) -> str:
        return "float32" if self.normalizes else "none"

    def _check_combine(self) -> None:
        if self.gate_columns == -1:
            object.__setattr__(self, "gate_columns", self.hidden_size)
        require_one_of("streams", self.streams, (0, 1, 2, 3, MAX_STREAMS))
        if type(self.gate_columns) is not int:
            raise TypeError(f"gate_columns: is {self.gate_columns!r}; expected an int")
        if self.gate_columns and not 1 <= self.gate_columns <= self.hidden_size:
            raise ValueError(f"granularity: is {self.gate_columns}; 1 to {self.hidden_size} is allowed")
        if self.gate_columns and self.hidden_size % self.gate_columns:
            raise ValueError(
                f"granularity: is {self.gate_columns}, which does not divide the hidden size {self.hidden_size}"
            )
        if sum(map(bool, (self.residual, self.gate_columns, self.streams))) > 1:
            raise ValueError("op: can have only one of residual, gate_columns and streams")

    @property
    def rows_combined(self) -> int:
        """Values of the input that go into one: 2 with gates, one of each stream, else 1."""
        return 2 if self.gate_columns else self.streams or 1

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
            self._check_columns(self.quant)

    def _check_decoding(self, quant: QuantSpec) -> None:
        if quant.both_layouts:
            raise ValueError(
                f"scale_layout: is {quant.scale_layout!r}, but dequantize reads one layout; name either of the two"
            )
        if self.tensor_scale and quant.global_scale != "none":
            raise ValueError(f"global_scale: is {quant.global_scale!r}, but with tensor_scale it must be 'none'")

    def _check_columns(self, quant: QuantSpec) -> None:
        if self.gate_columns or self.streams:
            raise ValueError("axis: is 0, which does not go with gate_columns or streams; use -1")
        if quant.element != "e2m1" or quant.scale_layout != "linear" or quant.global_scale not in ("none", "given"):
            raise ValueError(
                f"axis: is 0, which does not go with quant {quant}; "
                "allowed are e2m1 in the linear layout, with the global scale none or given"
            )

    def __str__(self) -> str:
        names = [field.name for field in fields(self)[1:]]
        common = names.index("pdl") + 1
        listed = names[:common] + [f.name for f in fields(self)[common + 1 :] if getattr(self, f.name) != f.default]
        return f"{self.op}:" + ",".join(f"{name}={_to_text(getattr(self, name))}" for name in listed)

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


def _read_columns(name: str, text: str) -> int:
    return -1 if text == "-1" else _read_int(name, text)


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
    "gate_columns": _read_columns,
    "streams": _read_int,
    "keep_rstd": _read_bool,
    "axis": lambda name, text: -1 if text == "-1" else _read_int(name, text),
    "tensor_scale": _read_bool,
    "batched": _read_bool,
    "shuffle_rows": _read_int,
}
