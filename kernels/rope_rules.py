"""Rules on the fields of a KernelConfig for the rotation of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .quant_spec import require_one_of

if TYPE_CHECKING:
    from .config import KernelConfig

ROPES = ("", "neox", "interleaved")
# Of a table of cosines and sines, or of frequencies.
FREQUENCIES = "int32"
ANGLE_DTYPES = ("float16", "bfloat16", "float32", FREQUENCIES)
POSITION_DTYPES = ("int32", "int64")
# Elements of a rotated head: the chunks of one warp, whose lanes exchange partners.
MAX_ROPE_SIZE = 512
# Elements of heads that share a row; each warp has whole ones.
SHARED_HEAD_SIZES = (16, 32, 64, 128, 256, 512)
# Elements of such a row: what the lanes of a block can hold.
MAX_ROPE_ROW = 32768


def check_rope(config: KernelConfig) -> None:
    """Raise ValueError if a field of a rotation has a value that is not allowed, or not allowed with the others."""
    require_one_of("rope", config.rope, ROPES)
    require_one_of("cos_sin_cache dtype", config.angles, ANGLE_DTYPES)
    require_one_of("positions dtype", config.positions, POSITION_DTYPES)
    _check_pages(config)
    if not config.rope:
        if config.rotary_size or config.head_size or config.angles != "float32" or config.positions != "int64":
            raise ValueError("rotary_size, head_size, angles, positions: are given without rope; leave them")
        return
    if not config.pair:
        raise ValueError(f"rope: is {config.rope!r}, but only the heads of a pair are rotated; use pair=True")
    if config.second_size:
        raise ValueError(f"second_size: is {config.second_size}, but rotated heads have one size; leave it 0")
    if config.head_size:
        _check_shared_row(config)
    elif config.hidden_size > MAX_ROPE_SIZE:
        raise ValueError(f"q: its last dimension (head size) is {config.hidden_size}; up to {MAX_ROPE_SIZE} are turned")
    size, head_size = config.rotary_size, config.head_size or config.hidden_size
    if type(size) is not int or size % 2 or not 2 <= size <= head_size:
        raise ValueError(
            f"cos_sin_cache: its last dimension is {size}; an even number from 2 to the head size "
            f"{head_size} is allowed"
        )


def _check_pages(config: KernelConfig) -> None:
    """Check the fields for inserting keys and values into pages."""
    require_one_of("slot_mapping dtype", config.slots, POSITION_DTYPES)
    if not config.paged:
        if config.keep_heads or config.slots != "int64":
            raise ValueError("keep_heads, slots: are given without paged; leave them")
        return
    if not config.rope or config.head_size:
        raise ValueError("paged: is True, which takes rope and rows that are a head each; leave head_size 0")


def _check_shared_row(config: KernelConfig) -> None:
    """Check a row of several heads."""
    if not config.normalizes:
        raise ValueError(f"head_size: is {config.head_size}, but only a norm takes heads together; leave it 0")
    require_one_of("head_size", config.head_size, (0, *SHARED_HEAD_SIZES))
    if config.hidden_size % config.head_size or config.hidden_size > MAX_ROPE_ROW:
        raise ValueError(
            f"q: its last dimension is {config.hidden_size}; a multiple of head_size {config.head_size} up to "
            f"{MAX_ROPE_ROW} is allowed"
        )
