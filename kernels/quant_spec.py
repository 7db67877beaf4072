"""QuantSpec: how values are encoded."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from .numerics import CHUNK_SIZE, to_float32
from .spelling import did_you_mean

# Element formats: bits of a code, the largest value and its exponent.
CODE_BITS = {"e2m1": 4, "e4m3": 8, "e5m2": 8, "int8": 8}
MAX_CODE = {"e2m1": 6.0, "e4m3": 448.0, "e5m2": 57344.0, "int8": 127.0}
MAX_EXPONENT = {"e2m1": 2, "e4m3": 8, "e5m2": 15, "int8": 6}
# Mantissa bits of the elements that can have UE8M0 scales.
MANTISSA_BITS = {"e2m1": 1, "e4m3": 3}

# Sizes of blocks that have as many rows as columns.
SQUARE_BLOCKS = {"128x128": 128}

SWIZZLED_ROWS = {"128x4": 128, "8x4": 8}  # rows of a tile
SWIZZLED_COLUMNS = 4
COLUMN_ROWS = {"column": 1, "column4": 4, "packed": 4}  # the multiple that each column's rows are rounded up to
PACKED_COLUMNS = 4  # columns of one-byte scales that share an integer
_SWIZZLED = ("linear", "128x4", "8x4", "linear+128x4", "linear+8x4")
_GROUPS = ("linear", "column", "column4")
_GROUP_SIZES = (16, 32, 48, 64, 96, 128, 256)

# Blocks of any size with a given scale: rows x columns, where columns are whole chunks of a row.
_GIVEN_BLOCKS = re.compile(r"(all|[1-9]\d*)x(all|[1-9]\d*)")
_ALL = "all"

# The range of scale floors: normal float32 numbers that have a next power of two.
_SMALLEST_NORMAL, _LARGEST = 2.0**-126, 2.0**127

# Block sizes of given scales; the last stands for all of `_GIVEN_BLOCKS`.
_GIVEN = ("row", "column", *_GROUP_SIZES, "128x128", "RxC")

_GLOBAL = ("none", "given", "row", "tensor")
# From the smallest scale in E4M3 that is not zero to the largest one.
_LEAST_MAXIMUM, _LARGEST_MAXIMUM = 2.0**-9, 448

# Values that go together: (elements, block sizes, scale formats, layouts, global scales, roundings, four over six).
_ALLOWED = (
    (("e2m1",), (16,), ("e4m3",), _SWIZZLED, _GLOBAL, ("up",), (False, True, "mae")),
    (("e2m1",), (32,), ("e4m3",), _SWIZZLED, _GLOBAL, ("up",), (False,)),
    (("e2m1",), (16, 32), ("ue8m0",), _SWIZZLED, ("none",), ("up", "floor", "even"), (False,)),
    (("e4m3",), (32,), ("ue8m0",), _SWIZZLED, ("none",), ("up", "floor", "even"), (False,)),
    (("e4m3",), _GROUP_SIZES, ("f32", "f32_ue8m0"), _GROUPS, ("none",), ("up",), (False,)),
    (("e4m3",), _GROUP_SIZES, ("f32_ue8m0",), ("packed",), ("none",), ("up",), (False,)),
    (("e4m3",), ("128x128",), ("f32", "f32_ue8m0"), ("linear",), ("none",), ("up",), (False,)),
    (("e4m3", "e5m2", "int8"), ("row",), ("f32",), ("linear",), ("none",), ("up",), (False,)),
    (("e4m3", "e5m2", "int8"), ("tensor",), ("f32",), ("linear",), ("none", "tensor"), ("up",), (False,)),
    (("int8",), _GROUP_SIZES, ("f32",), _GROUPS, ("none",), ("up",), (False,)),
    (("e4m3", "e5m2", "int8"), _GIVEN, ("f32",), ("linear",), ("given",), ("up",), (False,)),
)
# What each of these fields may be, whatever the others are.
_EVERYWHERE = tuple(tuple(dict.fromkeys(chain(*values))) for values in zip(*_ALLOWED, strict=True))


def require_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise ValueError, naming the argument and what is allowed, unless `value` is one of `allowed`."""
    for option in allowed:
        # 16.0 equals 16 and True equals 1, but neither writes the same source.
        if type(value) is type(option) and value == option:
            return
    raise ValueError(f"{name}: is {value!r}; allowed are {', '.join(map(repr, allowed))}{did_you_mean(value, allowed)}")


def to_text(value: object) -> str:
    """Write a field's value as in text forms: ``true``, ``none``, otherwise like str()."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _read_float(text: str) -> str | float | None:
    """Read a number, or None for ``none``; return any other text unchanged."""
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _is_given_block(value: object) -> bool:
    """Whether only given scales can have this block size."""
    found = _GIVEN_BLOCKS.fullmatch(value) if isinstance(value, str) and value not in SQUARE_BLOCKS else None
    if found is None or found[0] == "allxall":
        return False
    return found[2] == _ALL or int(found[2]) % 16 == 0


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """How values are encoded: element format, block size, scale format and layout, global scale.

    The text form is its fields joined by slashes: ``e2m1/16/e4m3/128x4/given``. The sixth and seventh are written only
    if one of them or a later one is not the default, ``e2m1/32/ue8m0/linear/none/floor/false``; the last two only up to
    the last one that is not: ``e4m3/row/f32/linear/none/up/false/0.001``.

    Args:
        element: format of the codes: ``e2m1`` (FP4), ``e4m3`` or ``e5m2`` (FP8), ``int8``.
        block_size: values that share a scale: 16, 32, 48, 64, 96, 128 or 256 of a row, ``128x128`` of 128 rows, ``row``
            or ``tensor`` (whose scale is given, unless `global_scale` is ``tensor``). If scales are given, also
            ``column``, or ``RxC``, such as ``4x256`` or ``allx128``: R rows times C columns, where either may be
            ``all`` and C is otherwise a multiple of 16.
        scale_format: ``e4m3`` (NVFP4's), ``ue8m0`` (a power of two, of the MX formats), ``f32``, or ``f32_ue8m0``, a
            power of two stored as float32.
        scale_layout: ``linear`` (row-major); ``128x4`` or ``8x4`` (swizzled for block-scaled MMA); ``linear+128x4``
            or ``linear+8x4`` (both); ``column`` or ``column4`` (column-major, rows rounded up to 4); ``packed``
            (``column4`` of integers, each of which holds the exponents of four columns, only for ``f32_ue8m0``).
        global_scale: ``given`` if a float32 encode scale multiplies the block scales, ``row`` if each row has its own,
            which is computed and returned; only with ``e2m1`` codes and ``e4m3`` scales. ``tensor`` if the whole tensor
            has one that is computed and returned; also with block size ``tensor``, whose scale is then computed. With
            ``f32`` scales, ``given`` means that those of rows, columns or blocks are given, not computed.
        scale_rounding: for ``ue8m0`` scales: ``up`` to the power of two at or above ``amax / (largest code)``;
            ``floor``, OCP's rule, ``2^(floor(log2 amax) - (exponent of the largest code))``, with which values may
            saturate; or ``even``, vLLM's rule for MXFP4, the same with amax rounded to the mantissa of a code.
        four_over_six: whether each block takes the better of two scales, ``amax / 6`` and ``amax / 4``: by the sum of
            squared errors (True) or of absolute ones (``mae``); only for ``e2m1/16/e4m3``.
        scale_floor: a lower bound for scales, at least 2^-126, rounded to float32; None for the format's own. Only for
            FP8 and INT8 with scales of rows or groups.
        e4m3_max: the scale of the block with the largest value where `global_scale` is computed, for ``row`` or
            ``tensor``: from 2^-9 to 448, such as 256, which leaves room for `four_over_six`. Rounded to float32. Only
            with ``e4m3`` scales.

    Raises:
        ValueError: a field has a value that is not allowed, or not allowed with the others.

    Example:
        >>> str(NVFP4.with_layout("128x4"))
        'e2m1/16/e4m3/128x4/none'
    """

    element: str = "e2m1"
    block_size: int | str = 16
    scale_format: str = "e4m3"
    scale_layout: str = "linear"
    global_scale: str = "none"
    scale_rounding: str = "up"
    four_over_six: bool | str = False
    # None, not 0.0: torch.compile would treat a number as one that may change.
    scale_floor: float | None = None
    e4m3_max: float = 448

    def __post_init__(self) -> None:
        self._check_combination()
        self._check_floor()
        self._check_maximum()
        rounded = to_float32(self.e4m3_max)
        object.__setattr__(self, "e4m3_max", int(rounded) if rounded.is_integer() else rounded)

    def _check_combination(self) -> None:
        fitting = list(_ALLOWED)
        for position, (field, everywhere) in enumerate(zip(fields(self), _EVERYWHERE, strict=False)):
            value = getattr(self, field.name)
            if field.name == "block_size" and _is_given_block(value):
                value = _GIVEN[-1]
            require_one_of(field.name, value, everywhere)
            before, fitting = fitting, [each for each in fitting if value in each[position]]
            if not fitting:
                allowed = dict.fromkeys(chain(*(each[position] for each in before)))
                others = ", ".join(f"{f.name} {getattr(self, f.name)!r}" for f in fields(self)[:position])
                raise ValueError(
                    f"{field.name}: is {value!r}, which cannot be combined with {others}; "
                    f"allowed then are {', '.join(map(repr, allowed))}"
                )

    def _check_floor(self) -> None:
        floor = self.scale_floor
        if floor is None:
            return
        if type(floor) is not float or not _SMALLEST_NORMAL <= floor <= _LARGEST:
            raise ValueError(f"scale_floor: is {floor!r}; allowed are None and floats from 2**-126 to 2**127")
        if not self.may_be_bounded:
            raise ValueError(
                f"scale_floor: is {floor!r}, but only FP8 and INT8 scales of rows or groups have one; leave it None"
            )

    def _check_maximum(self) -> None:
        is_number = type(self.e4m3_max) in (int, float)
        if not is_number or not _LEAST_MAXIMUM <= self.e4m3_max <= _LARGEST_MAXIMUM:
            raise ValueError(f"e4m3_max: is {self.e4m3_max!r}; allowed are numbers from 2**-9 to {_LARGEST_MAXIMUM}")
        if self.e4m3_max != 448 and self.scale_format != "e4m3":
            raise ValueError(f"e4m3_max: is {self.e4m3_max}, but scales are in {self.scale_format}; leave it 448")

    def __str__(self) -> str:
        values = [getattr(self, field.name) for field in fields(self)]
        if self.e4m3_max == 448:
            del values[-1:]
            if self.scale_floor is None:
                del values[-1:]
                if values[-2:] == ["up", False]:
                    del values[-2:]
        return "/".join(map(to_text, values))

    @classmethod
    def parse(cls, text: str) -> QuantSpec:
        """Parse a text form; fields omitted at the end take their defaults."""
        if not isinstance(text, str):
            raise TypeError(f"text: is {text!r}; expected a text, such as 'e2m1/16/e4m3'")
        values: list[Any] = list(text.split("/"))
        if len(values) > len(_ALLOWED[0]) + 2:
            raise ValueError(
                f"quant: {text!r} is not element/block_size/scale_format/scale_layout/global_scale/scale_rounding/"
                "four_over_six/scale_floor/e4m3_max, such as e2m1/16/e4m3/linear/none"
            )
        values[1:2] = [int(value) if value.isdecimal() else value for value in values[1:2]]
        values[6:7] = [{"true": True, "false": False}.get(value, value) for value in values[6:7]]
        values[7:] = map(_read_float, values[7:])
        return cls(*values)

    def with_layout(self, scale_layout: str) -> QuantSpec:
        """The same encoding with its scales stored in another layout."""
        return replace(self, scale_layout=scale_layout)

    def with_global_scale(self, global_scale: str) -> QuantSpec:
        """The same encoding with another kind of global scale."""
        return replace(self, global_scale=global_scale)

    def with_scale_floor(self, scale_floor: float | None) -> QuantSpec:
        """The same encoding with a lower bound for scales.

        Example:
            >>> str(FP8_TOKEN.with_scale_floor(0.001))
            'e4m3/row/f32/linear/none/up/false/0.001'
        """
        return replace(self, scale_floor=scale_floor)

    @property
    def has_blocks(self) -> bool:
        """Whether scales are computed for blocks, rather than for rows or the tensor, or given."""
        return self.block_size not in ("row", "tensor") and not self.has_given_scales

    @property
    def has_given_scales(self) -> bool:
        """Whether scales of rows, columns or blocks are given."""
        return self.global_scale == "given" and self.scale_format == "f32"

    @property
    def may_be_given(self) -> bool:
        """Whether scales could also be given instead of computed."""
        is_plain = self.scale_format == "f32" and self.scale_layout == "linear" and self.scale_floor is None
        return is_plain and self.block_size != "tensor"

    @property
    def may_be_found(self) -> bool:
        """Whether scales are given that could also be computed."""
        fitting = (each for each in _ALLOWED if self.element in each[0] and self.block_size in each[1])
        return self.has_given_scales and any("f32" in each[2] and "none" in each[4] for each in fitting)

    @property
    def given_block(self) -> tuple[int | None, int | None]:
        """Rows and columns of the blocks whose scales are given; None for all."""
        text = {"row": "1xall", "column": "allx1"}.get(str(self.block_size), str(self.block_size))
        rows, columns = text.split("x") if "x" in text else ("1", text)
        return (None if rows == _ALL else int(rows)), (None if columns == _ALL else int(columns))

    @property
    def block_rows(self) -> int:
        """Rows that share the computed scale of a block."""
        return 1 if self.has_given_scales else SQUARE_BLOCKS.get(str(self.block_size), 1)

    @property
    def block_columns(self) -> int:
        """Values of a row that share the scale of a block; 1 if scales belong to rows or the tensor."""
        if self.has_given_scales:
            return self.given_block[1] or 1
        return self.block_size if isinstance(self.block_size, int) else self.block_rows

    @property
    def crosses_warps(self) -> bool:
        """Whether a block with a computed scale may have chunks in two warps: their number is not a power of two."""
        chunks = self.block_columns // CHUNK_SIZE
        return self.has_blocks and chunks & (chunks - 1) != 0

    @property
    def both_layouts(self) -> bool:
        """Whether the scales are written twice, linear and swizzled."""
        return self.scale_layout.startswith("linear+")

    @property
    def is_swizzled(self) -> bool:
        """Whether the scales are (also) written in a swizzled layout."""
        return self.scale_layout.removeprefix("linear+") in SWIZZLED_ROWS

    @property
    def is_column_major(self) -> bool:
        """Whether the scales are written column by column."""
        return self.scale_layout in COLUMN_ROWS

    @property
    def is_packed(self) -> bool:
        """Whether four scales, each in a byte, share an integer."""
        return self.scale_layout == "packed"

    @property
    def row_multiple(self) -> int:
        """The multiple that the layout rounds the number of rows up to."""
        layout = self.scale_layout.removeprefix("linear+")
        return {**SWIZZLED_ROWS, **COLUMN_ROWS}.get(layout, 1)

    @property
    def needs_row_amax(self) -> bool:
        """Whether encoding needs the largest magnitude of the row first."""
        return self.global_scale == "row" or (self.block_size == "row" and not self.has_given_scales)

    @property
    def may_be_bounded(self) -> bool:
        """Whether the amax of each scale may have an upper bound."""
        is_found = self.block_size != "tensor" and not self.has_given_scales
        return self.scale_format.startswith("f32") and self.block_rows == 1 and is_found

    @property
    def smallest_scale(self) -> float:
        """The smallest computed float32 scale, itself rounded to float32."""
        if self.scale_floor is not None:
            return to_float32(self.scale_floor)
        least_amax = 1e-10 if self.element == "int8" else 1e-4 if self.has_blocks else 1 / 512
        return to_float32(to_float32(least_amax) / MAX_CODE[self.element])

    @property
    def needs_given_scale(self) -> bool:
        """Whether encoding needs a single given scale, global or of FP8 or INT8."""
        is_global = self.global_scale == "given" and not self.has_given_scales
        return is_global or (self.block_size == "tensor" and not self.needs_tensor_amax)

    @property
    def needs_tensor_amax(self) -> bool:
        """Whether encoding first needs the largest magnitude of the tensor, which another launch computes."""
        return self.global_scale == "tensor"


NVFP4 = QuantSpec("e2m1", 16, "e4m3")
MXFP4 = QuantSpec("e2m1", 32, "ue8m0")
MXFP8 = QuantSpec("e4m3", 32, "ue8m0")
FP8_TENSOR = QuantSpec("e4m3", "tensor", "f32")
FP8_TOKEN = QuantSpec("e4m3", "row", "f32")
FP8_GROUP = QuantSpec("e4m3", 128, "f32")
FP8_BLOCK = QuantSpec("e4m3", "128x128", "f32")
INT8_TENSOR = QuantSpec("int8", "tensor", "f32")
INT8_TOKEN = QuantSpec("int8", "row", "f32")
INT8_GROUP = QuantSpec("int8", 128, "f32")
