"""KernelConfig: everything that changes the generated code, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .numerics import round_up
from .quant_spec import QuantSpec, require_one_of, to_text

OPS = ("rmsnorm", "layernorm", "quantize")
NORM_DTYPES = ("float16", "bfloat16", "float32")
INPUT_DTYPES = (*NORM_DTYPES, "float8_e4m3fn")
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
        op: what the kernel computes: ``rmsnorm``, ``layernorm``, or ``quantize`` for quantization alone.
        hidden_size: elements in a row, 1 to 262144; divisible by the block size if `quant` has one.
        input: dtype of the input: ``float16``, ``bfloat16`` or ``float32``; ``quantize`` also takes ``float8_e4m3fn``.
        weight: dtype of the weight, the input's (the default) or ``float32``; ``none`` for ``quantize``.
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
        many_rows: whether the kernel is for so many rows that they, not the time of one, decide; see schedule.py.
        keep_rstd: whether the reciprocal root mean square of each row is written, too.
        pair: whether the rows are those of two inputs, each with a weight and an output of its own; only for a plain
            ``rmsnorm``.
        batched: whether the input's first dimension counts matrices, whose scales are padded each for itself.
        masked: whether a mask says how many rows of each matrix there are, the others being left alone; only if
            `batched`.
        scale_per_matrix: whether the scale that is given, global or of FP8, has an element for each matrix; only if
            `batched`.
        amax_only: whether the largest magnitude of all (normalized) elements is all that is written; `quant` is None
            and a residual is only read.
        scale_ub: whether an upper bound of amax is given; only for FP8 with scales of rows or groups.
        inverse_global_scale: whether the global scale given is the decode scale, the inverse of the encode scale.
        alignment: what the rows of codes are rounded up to, in elements, which are zero; only for ``quantize`` with
            scales of one byte.

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
    many_rows: bool = False
    keep_rstd: bool = False
    pair: bool = False
    batched: bool = False
    masked: bool = False
    scale_per_matrix: bool = False
    amax_only: bool = False
    scale_ub: bool = False
    inverse_global_scale: bool = False
    alignment: int = 1

    def __post_init__(self) -> None:
        require_one_of("op", self.op, OPS)
        if not isinstance(self.quant, QuantSpec | None):
            raise TypeError(f"quant: is {self.quant!r}; expected a QuantSpec or None")
        if not self.weight:
            object.__setattr__(self, "weight", self._default_weight)
        require_one_of("input dtype", self.input, NORM_DTYPES if self.normalizes else INPUT_DTYPES)
        require_one_of("weight dtype", self.weight, tuple(dict.fromkeys((self._default_weight, self._wide_weight))))
        require_one_of("row_dims", self.row_dims, tuple(range(1, MAX_ROW_DIMS + 1)))
        require_one_of("vector_bytes", self.vector_bytes, VECTOR_BYTES)
        self._check_options()
        self._check_hidden_size()
        if self.quant is None and (self.keep_norm or not (self.normalizes or self.amax_only)):
            raise ValueError("quant: is None, but quantize and keep_norm need a QuantSpec")
        if not self.normalizes and (self.unit_bias or self.residual or self.keep_norm or self.keep_rstd):
            raise ValueError(
                "op: is 'quantize', which has no unit_bias, residual, keep_norm or keep_rstd; use 'rmsnorm'"
            )
        if self.unit_bias and self.op == "layernorm":
            raise ValueError("unit_bias: is True, but layernorm has none; use 'rmsnorm'")
        self._check_combine()
        self._check_row_sets()

    @property
    def normalizes(self) -> bool:
        """Whether rows are normalized."""
        return self.op != "quantize"

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
    def encoded_size(self) -> int:
        """Elements in a row of codes: the hidden size, rounded up to the alignment."""
        return round_up(self.hidden_size, self.alignment)

    def _check_options(self) -> None:
        quant = self.quant
        if self.amax_only and (quant is not None or self.keep_rstd):
            raise ValueError(
                f"amax_only: is True, but quant is {quant} and keep_rstd {self.keep_rstd}; use None and False"
            )
        if self.scale_ub and (quant is None or not quant.may_be_bounded):
            raise ValueError(f"scale_ub: is given, but only FP8 scales of rows or groups are bounded; quant is {quant}")
        if self.inverse_global_scale and (quant is None or quant.global_scale != "given"):
            raise ValueError(f"inverse_global_scale: is True, but no global scale is given; quant is {quant}")
        if type(self.alignment) is not int or self.alignment < 1:
            raise ValueError(f"alignment: is {self.alignment!r}; expected a positive int")
        if self.alignment % self.block_size and self.block_size % self.alignment:
            raise ValueError(
                f"alignment: is {self.alignment}; allowed are divisors and multiples of block_size {self.block_size}"
            )
        if self.alignment > 1 and (
            self.normalizes or self.rows_combined > 1 or quant is None or quant.scale_format not in ("e4m3", "ue8m0")
        ):
            raise ValueError(
                f"alignment: is {self.alignment}, but only quantize with block scales of one byte pads rows"
            )

    def _check_row_sets(self) -> None:
        others = (
            self.residual,
            self.quant,
            self.gate_columns,
            self.streams,
            self.keep_rstd,
            self.batched,
            self.amax_only,
        )
        if self.pair and (self.op != "rmsnorm" or any(others)):
            raise ValueError("pair: is True, which goes with a plain rmsnorm alone")
        if (self.masked or self.scale_per_matrix) and not self.batched:
            raise ValueError("masked, scale_per_matrix: need batched=True")
        if self.masked and (self.amax_only or (self.quant and self.quant.needs_tensor_amax)):
            raise ValueError("masked: is True, but the amax of a tensor is that of all its rows; use False")
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
        if self.encoded_size > MAX_HIDDEN_SIZE:
            raise ValueError(
                f"alignment: is {self.alignment}, which makes rows of {self.encoded_size} codes; "
                f"up to {MAX_HIDDEN_SIZE} is supported"
            )

    def __str__(self) -> str:
        names = [field.name for field in fields(self)[1:]]
        common = names.index("pdl") + 1
        listed = names[:common] + [f.name for f in fields(self)[common + 1 :] if getattr(self, f.name) != f.default]
        return f"{self.op}:" + ",".join(f"{name}={to_text(getattr(self, name))}" for name in listed)

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
    "many_rows": _read_bool,
    "keep_rstd": _read_bool,
    "pair": _read_bool,
    "batched": _read_bool,
    "masked": _read_bool,
    "scale_per_matrix": _read_bool,
    "amax_only": _read_bool,
    "scale_ub": _read_bool,
    "inverse_global_scale": _read_bool,
    "alignment": _read_int,
}
