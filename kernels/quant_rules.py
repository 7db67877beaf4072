"""Rules on the fields of a KernelConfig for decoding, and for blocks that run along columns or span rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .quant_spec import QuantSpec

if TYPE_CHECKING:
    from .config import KernelConfig


def check_quant(config: KernelConfig) -> None:
    """Raise ValueError if an op does not support its way of encoding or decoding."""
    if config.quant:
        _check_decoding(config, config.quant)
        _check_columns(config, config.quant)
        _check_square_blocks(config, config.quant)


def _check_decoding(config: KernelConfig, quant: QuantSpec) -> None:
    if config.op != "dequantize":
        return
    if quant.both_layouts:
        raise ValueError(
            f"scale_layout: is {quant.scale_layout!r}, but dequantize reads one layout; name either of the two"
        )
    if quant.needs_tensor_amax:
        raise ValueError(
            "global_scale: is 'tensor', but dequantize finds no scale; use 'none', with blocks tensor_scale"
        )
    if config.tensor_scale and quant.global_scale != "none":
        raise ValueError(f"global_scale: is {quant.global_scale!r}, but with tensor_scale it must be 'none'")


def _check_columns(config: KernelConfig, quant: QuantSpec) -> None:
    if config.axis != 0:
        return
    if config.activation or config.streams or config.batched:
        raise ValueError("axis: is 0, which excludes gate_columns, activation, streams and batched; use -1")
    if quant.element != "e2m1" or quant.scale_layout != "linear" or quant.global_scale not in ("none", "given"):
        raise ValueError(
            f"axis: is 0, which cannot be combined with quant {quant}; "
            "allowed are e2m1 in the linear layout, with the global scale none or given"
        )


def _check_square_blocks(config: KernelConfig, quant: QuantSpec) -> None:
    if not config.has_square_blocks:
        return
    if config.op not in ("quantize", "dequantize") or config.gate_columns or config.streams:
        raise ValueError(
            f"block_size: is {quant.block_size!r}, blocks of which only quantize and dequantize have; "
            f"use {quant.block_columns}, blocks of one row"
        )
    if config.masked:
        raise ValueError(f"mask: is given, but blocks of {quant.block_size} span rows that it may leave out; pass None")
