"""Measures the error of each format on real activations; rewrites the table and the plot of docs/formats.md.

Needs only jitnorm: python scripts/formats.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import svg
from numpy.typing import NDArray

from jitnorm import reference as ref

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "formats.md"
PLOT = ROOT / "docs" / "formats.svg"
SITES = ("l3_mlp", "l5_mlp")

Array = NDArray[Any]
Encoded = tuple[Iterable[Array], Array]
"""All stored values, and what they decode to."""


def fp4(block_size: int, scale_format: Any, **options: Any) -> Callable[[Array], Encoded]:
    def encode(y: Array) -> Encoded:
        stored = ref.quantize_fp4(y, block_size=block_size, scale_format=scale_format, **options)
        return stored, ref.dequantize_fp4(*stored, block_size=block_size, scale_format=scale_format)

    return encode


def nvfp4(quantize: Callable[..., Any], block_size: int = 16, **options: Any) -> Callable[[Array], Encoded]:
    def encode(y: Array) -> Encoded:
        codes, scales, decode_scale = quantize(y, block_size, **options)
        value = ref.dequantize_fp4(codes, scales, block_size=block_size, scale_format="e4m3", decode_scale=decode_scale)
        return (codes, scales, decode_scale), value

    return encode


def mxfp8(scale_rounding: Any) -> Callable[[Array], Encoded]:
    def encode(y: Array) -> Encoded:
        stored = ref.quantize_mxfp8(y, scale_rounding)
        return stored, ref.dequantize_mxfp8(*stored)

    return encode


def fp8(quantize: Callable[..., Any], **options: Any) -> Callable[[Array], Encoded]:
    def encode(y: Array) -> Encoded:
        stored = quantize(y, **options)
        return stored, ref.dequantize_fp8(*stored, options.get("dtype", "e4m3"))

    return encode


def int8(quantize: Callable[..., Any], **options: Any) -> Callable[[Array], Encoded]:
    def encode(y: Array) -> Encoded:
        stored = quantize(y, **options)
        return stored, ref.dequantize_int8(*stored)

    return encode


FORMATS: dict[str, Callable[[Array], Encoded]] = {
    "MXFP4, up": fp4(32, "ue8m0"),
    "MXFP4, floor": fp4(32, "ue8m0", scale_rounding="floor"),
    "E2M1 in blocks of 32, E4M3 scales, global scale tensor": nvfp4(ref.quantize_nvfp4_tensor, 32),
    "E2M1 in blocks of 16, UE8M0 scales": fp4(16, "ue8m0"),
    "NVFP4, no global scale": fp4(16, "e4m3"),
    "NVFP4, no global scale, four over six": fp4(16, "e4m3", four_over_six=True),
    "NVFP4, global scale tensor": nvfp4(ref.quantize_nvfp4_tensor),
    "NVFP4, global scale tensor, four over six": nvfp4(ref.quantize_nvfp4_tensor, four_over_six=True),
    "NVFP4, global scale row": nvfp4(ref.quantize_nvfp4_row),
    "NVFP4, global scale row, four over six": nvfp4(ref.quantize_nvfp4_row, four_over_six=True),
    "FP8 E4M3, tensor": fp8(ref.quantize_fp8_tensor),
    "FP8 E5M2, tensor": fp8(ref.quantize_fp8_tensor, dtype="e5m2"),
    "FP8 E4M3, token": fp8(ref.quantize_fp8_token),
    "FP8 E5M2, token": fp8(ref.quantize_fp8_token, dtype="e5m2"),
    "INT8, tensor": int8(ref.quantize_int8_tensor),
    "INT8, token": int8(ref.quantize_int8_token),
    "MXFP8, up": mxfp8("up"),
    "MXFP8, floor": mxfp8("floor"),
    "FP8 E4M3, groups of 128": fp8(ref.quantize_fp8_group),
    "FP8 E4M3, groups of 128, powers of two": fp8(ref.quantize_fp8_group, scale_format="ue8m0_f32"),
    "INT8, groups of 128": int8(ref.quantize_int8_group),
    "FP8 E4M3, groups of 64": fp8(ref.quantize_fp8_group, group_size=64),
    "INT8, groups of 64": int8(ref.quantize_int8_group, group_size=64),
}


@dataclass(frozen=True)
class Measured:
    """A format: bits per value, counting everything stored, and the SQNR in dB at each site."""

    name: str
    bits: float
    sqnr: tuple[float, ...]


def activations(site: str) -> Array:
    """RMSNorm of a site's input with the site's weight, in float32."""
    with np.load(ROOT / "jitnorm" / "data" / "activations.npz") as arrays:
        x, weight = (arrays[f"{name}_{site}"].view(ml_dtypes.bfloat16) for name in ("x", "gamma"))
    return ref.rmsnorm_f32(x, weight)


def measure() -> list[Measured]:
    """Measure all formats."""
    signals = [activations(site) for site in SITES]
    rows = []
    for name, encode in FORMATS.items():
        encoded = [encode(y) for y in signals]
        bits = sum(part.nbytes for part in encoded[0][0]) * 8 / signals[0].size
        rows.append(Measured(name, bits, tuple(sqnr(y, out) for y, (_, out) in zip(signals, encoded, strict=True))))
    return rows


def sqnr(signal: Array, decoded: Array) -> float:
    """Signal-to-quantization-noise ratio in dB."""
    exact = signal.astype(np.float64)
    return float(10 * np.log10(np.sum(exact**2) / np.sum((exact - decoded) ** 2)))


def table(rows: list[Measured]) -> str:
    """The rows in Markdown, numbered as in the plot."""
    lines = ["| # | format | bits per value | SQNR, `x_l3_mlp` | SQNR, `x_l5_mlp` |", "| --- | --- | --- | --- | --- |"]
    for number, row in enumerate(rows, 1):
        decibels = " | ".join(f"{value:.2f}" for value in row.sqnr)
        lines.append(f"| {number} | {row.name} | {row.bits:.2f} | {decibels} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Panel:
    """A panel of the plot: its range of bits and dB, and its left edge in pixels."""

    bits: tuple[float, float]
    decibels: tuple[int, int]
    left: int
    width: int = 320
    height: int = 300
    top: int = 20

    def x(self, bits: float) -> float:
        return self.left + self.width * (bits - self.bits[0]) / (self.bits[1] - self.bits[0])

    def y(self, decibels: float) -> float:
        return self.top + self.height * (self.decibels[1] - decibels) / (self.decibels[1] - self.decibels[0])


# No format lies between the two, and one common range would hide the differences within each.
PANELS = (Panel((4.2, 4.65), (17, 22), 50), Panel((7.9, 8.6), (25, 43), 430))


def plot(rows: list[Measured]) -> str:
    """Draw the mean SQNR of both sites over bits per value, as SVG."""
    body = [element for panel in PANELS for element in (*axes(panel), *points(panel, rows))]
    return svg.document(770, 370, "SQNR against bits per value", body)


def axes(panel: Panel) -> Iterable[str]:
    """Draw the frame, a line and a label for each dB, labels for bits, and the titles."""
    left, right, bottom = panel.left, panel.left + panel.width, panel.top + panel.height
    for decibels in range(panel.decibels[0], panel.decibels[1] + 1):
        y = panel.y(decibels)
        yield f"<path d='M{left} {y:.1f}H{right}' stroke='#ddd'/>"
        yield svg.text(left - 6, y + 4, str(decibels), "end")
    for eighth in range(33, 70):
        if panel.bits[0] < eighth / 8 < panel.bits[1]:
            yield svg.text(panel.x(eighth / 8), bottom + 18, f"{eighth / 8:g}")
    yield svg.text((left + right) / 2, bottom + 38, "bits per value")
    yield svg.text(left, panel.top - 6, "SQNR in dB", "start")


def points(panel: Panel, rows: list[Measured]) -> Iterable[str]:
    """Draw a dot for each format, with its number in the table on its right; numbers in a column do not overlap."""
    lowest: dict[str, float] = {}
    numbered = sorted(enumerate(rows, 1), key=lambda item: -round(sum(item[1].sqnr), 4))
    for number, row in numbered:
        if panel.bits[0] < row.bits < panel.bits[1]:
            x, y = panel.x(row.bits), panel.y(sum(row.sqnr) / len(row.sqnr))
            column = f"{row.bits:.2f}"
            lowest[column] = label = max(y + 4, lowest.get(column, 0) + 13)
            yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='#1f5fa8'/>"
            yield svg.text(x + 8, label, str(number), "start")


def main() -> None:
    """Rewrite the table of the page, and the plot."""
    rows = measure()
    page = PAGE.read_text(encoding="utf-8")
    page = re.sub(r"^\| # \|.*?(?=\n\n)", lambda _: table(rows), page, count=1, flags=re.DOTALL | re.MULTILINE)
    PAGE.write_text(page, encoding="utf-8")
    PLOT.write_text(plot(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
