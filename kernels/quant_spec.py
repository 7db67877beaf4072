"""QuantSpec: how values are encoded."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

# Element formats: bits of a code, the largest value.
CODE_BITS = {"e2m1": 4, "e4m3": 8, "e5m2": 8}
MAX_CODE = {"e2m1": 6.0, "e4m3": 448.0, "e5m2": 57344.0}

SWIZZLED_ROWS = {"128x4": 128, "8x4": 8}  # rows of a tile
COLUMN_ROWS = {"column": 1, "column4": 4}  # what each column's rows are rounded up to
_SWIZZLED = ("linear", "128x4", "8x4", "linear+128x4", "linear+8x4")
_GROUPS = ("linear", *COLUMN_ROWS)

# What goes together: (elements, block sizes, scale formats, layouts, global scales).
_FAMILIES = (
    (("e2m1",), (16, 32), ("e4m3",), _SWIZZLED, ("none", "given", "row")),
    (("e2m1",), (16, 32), ("ue8m0",), _SWIZZLED, ("none",)),
    (("e4m3",), (32,), ("ue8m0",), _SWIZZLED, ("none",)),
    (("e4m3",), (64, 128), ("f32", "f32_ue8m0"), _GROUPS, ("none",)),
    (("e4m3", "e5m2"), ("row", "tensor"), ("f32",), ("linear",), ("none",)),
)


def require_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise ValueError, naming the argument and what is allowed, unless `value` is one of `allowed`."""
    # 16.0 equals 16 and True equals 1, but neither writes the same source.
    if isinstance(value, bool) or not any(value == option and isinstance(value, type(option)) for option in allowed):
        raise ValueError(f"{name}: is {value!r}; allowed are {', '.join(map(repr, allowed))}")


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """How values are encoded: element format, block size, scale format and layout, global scale.

    The text form is its fields joined by slashes: ``e2m1/16/e4m3/128x4/given``.

    Args:
        element: format of the codes: ``e2m1`` (FP4), ``e4m3`` or ``e5m2`` (FP8).
        block_size: values that share a scale: 16, 32, 64, 128, ``row`` or ``tensor`` (the scale is given then).
        scale_format: ``e4m3`` (NVFP4's), ``ue8m0`` (a power of two, of the MX formats), ``f32``, or ``f32_ue8m0``, a
            power of two stored as float32.
        scale_layout: ``linear`` (row-major); ``128x4`` or ``8x4`` (swizzled for block-scaled MMA); ``linear+128x4``
            or ``linear+8x4`` (both); ``column`` or ``column4`` (column-major, rows rounded up to 4).
        global_scale: ``given`` if a float32 encode scale multiplies the block scales, ``row`` if each row has one of
            its own, found and returned; only with ``e2m1`` codes and ``e4m3`` scales.

    Raises:
        ValueError: a field has a value that is not allowed, or not with the others.

    Example:
        >>> str(NVFP4.with_layout("128x4"))
        'e2m1/16/e4m3/128x4/none'
    """

    element: str = "e2m1"
    block_size: int | str = 16
    scale_format: str = "e4m3"
    scale_layout: str = "linear"
    global_scale: str = "none"

    def __post_init__(self) -> None:
        families = list(_FAMILIES)
        for position, field in enumerate(fields(self)):
            value = getattr(self, field.name)
            everywhere = tuple(dict.fromkeys(value for family in _FAMILIES for value in family[position]))
            require_one_of(field.name, value, everywhere)
            allowed = tuple(dict.fromkeys(value for family in families for value in family[position]))
            if value not in allowed:
                others = ", ".join(f"{f.name} {getattr(self, f.name)!r}" for f in fields(self)[:position])
                raise ValueError(
                    f"{field.name}: is {value!r}, which does not go with {others}; "
                    f"allowed then are {', '.join(map(repr, allowed))}"
                )
            families = [family for family in families if value in family[position]]

    def __str__(self) -> str:
        return "/".join(str(getattr(self, field.name)) for field in fields(self))

    @classmethod
    def parse(cls, text: str) -> QuantSpec:
        """The QuantSpec of a text form; fields left out at the end take their defaults."""
        values: list[int | str] = list(text.split("/"))
        if len(values) > len(fields(cls)):
            raise ValueError(
                f"quant: {text!r} is not element/block_size/scale_format/scale_layout/global_scale, "
                "such as e2m1/16/e4m3/linear/none"
            )
        values[1:2] = [int(value) if str(value).isdecimal() else value for value in values[1:2]]
        return cls(*values)  # type: ignore[arg-type]

    def with_layout(self, scale_layout: str) -> QuantSpec:
        """The same encoding with its scales stored in another layout."""
        return replace(self, scale_layout=scale_layout)

    def with_global_scale(self, global_scale: str) -> QuantSpec:
        """The same encoding with another kind of global scale."""
        return replace(self, global_scale=global_scale)

    @property
    def has_blocks(self) -> bool:
        """Whether scales belong to blocks, rather than to rows or the tensor."""
        return isinstance(self.block_size, int)

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
    def row_multiple(self) -> int:
        """What the layout rounds the number of rows up to."""
        layout = self.scale_layout.removeprefix("linear+")
        return {**SWIZZLED_ROWS, **COLUMN_ROWS}.get(layout, 1)

    @property
    def needs_row_amax(self) -> bool:
        """Whether encoding needs the largest magnitude of the row first."""
        return self.global_scale == "row" or self.block_size == "row"

    @property
    def needs_given_scale(self) -> bool:
        """Whether encoding needs a scale that is given, global or of FP8."""
        return self.global_scale == "given" or self.block_size == "tensor"


NVFP4 = QuantSpec("e2m1", 16, "e4m3")
MXFP4 = QuantSpec("e2m1", 32, "ue8m0")
MXFP8 = QuantSpec("e4m3", 32, "ue8m0")
FP8_TENSOR = QuantSpec("e4m3", "tensor", "f32")
FP8_TOKEN = QuantSpec("e4m3", "row", "f32")
FP8_GROUP = QuantSpec("e4m3", 128, "f32")
