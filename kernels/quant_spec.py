"""QuantSpec: how values are encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace

ELEMENTS = ("e2m1",)
BLOCK_SIZES = (16, 32)
SCALE_FORMATS = ("e4m3", "ue8m0")
SCALE_LAYOUTS = ("linear", "128x4", "linear+128x4")
GLOBAL_SCALES = ("none", "given")


def require_one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise ValueError, naming the argument and what is allowed, unless `value` is one of `allowed`."""
    if value not in allowed or isinstance(value, bool):
        raise ValueError(f"{name}: is {value!r}; allowed are {', '.join(map(repr, allowed))}")


@dataclass(frozen=True, slots=True)
class QuantSpec:
    """How values are encoded: element format, block size, scale format and layout, global scale.

    The text form is its fields joined by slashes: ``e2m1/16/e4m3/128x4/given``.

    Args:
        element: format of the codes; ``e2m1`` (FP4).
        block_size: how many consecutive values share a scale, 16 or 32.
        scale_format: ``e4m3`` (NVFP4's) or ``ue8m0`` (a power of two, MXFP4's).
        scale_layout: ``linear`` (row-major), ``128x4`` (swizzled for block-scaled MMA) or ``linear+128x4``.
        global_scale: ``given`` if a float32 encode scale multiplies the block scales; only with ``e4m3``.

    Raises:
        ValueError: a field has a value that is not allowed.

    Example:
        >>> str(NVFP4.with_layout("128x4"))
        'e2m1/16/e4m3/128x4/none'
    """

    element: str = "e2m1"
    block_size: int = 16
    scale_format: str = "e4m3"
    scale_layout: str = "linear"
    global_scale: str = "none"

    def __post_init__(self) -> None:
        require_one_of("element", self.element, ELEMENTS)
        require_one_of("block_size", self.block_size, BLOCK_SIZES)
        require_one_of("scale_format", self.scale_format, SCALE_FORMATS)
        require_one_of("scale_layout", self.scale_layout, SCALE_LAYOUTS)
        require_one_of("global_scale", self.global_scale, GLOBAL_SCALES)
        if self.global_scale == "given" and self.scale_format == "ue8m0":
            raise ValueError(
                "global_scale: has no meaning with scale_format 'ue8m0', whose range needs none; "
                "pass None, or use scale_format 'e4m3'"
            )

    def __str__(self) -> str:
        fields = (self.element, self.block_size, self.scale_format, self.scale_layout, self.global_scale)
        return "/".join(map(str, fields))

    @classmethod
    def parse(cls, text: str) -> QuantSpec:
        """The QuantSpec of a text form; fields left out at the end take their defaults."""
        fields = text.split("/")
        if len(fields) > 5 or (len(fields) > 1 and not fields[1].isdecimal()):
            raise ValueError(
                f"quant: {text!r} is not element/block_size/scale_format/scale_layout/global_scale, "
                "such as e2m1/16/e4m3/linear/none"
            )
        element, *rest = fields
        return cls(element, *[int(rest[0]), *rest[1:]] if rest else [])  # type: ignore[arg-type]

    def with_layout(self, scale_layout: str) -> QuantSpec:
        """The same encoding with its scales stored in another layout."""
        return replace(self, scale_layout=scale_layout)

    @property
    def both_layouts(self) -> bool:
        """Whether the scales are written twice, linear and swizzled."""
        return self.scale_layout == "linear+128x4"

    @property
    def is_swizzled(self) -> bool:
        """Whether the scales are (also) written in the 128x4 layout."""
        return self.scale_layout != "linear"


NVFP4 = QuantSpec("e2m1", 16, "e4m3")
MXFP4 = QuantSpec("e2m1", 32, "ue8m0")
