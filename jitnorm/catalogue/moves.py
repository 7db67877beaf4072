"""Rearrangements of weights and scales."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.op import Choices, Fields, Launch, Op


def shuffle_launch(size: int, dtype: str) -> Launch:
    """A launch that permutes rows in blocks of 32."""
    return Launch({"op": "shuffle", "shuffle_rows": 32}, size, dtype)


def interleave_launch(size: int, dtype: str) -> Launch:
    """A launch that gives the scales of one matrix the 128x4 layout."""
    return Launch({"op": "interleave", "batched": False}, size, dtype)


def _interleave(batched: bool) -> Fields:
    return {"batched": batched}


def _shuffle(shuffle_rows: int) -> Fields:
    return {"shuffle_rows": shuffle_rows}


def _tile(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"epilogue_tile_m": 4 * fields["shuffle_rows"]}


def _interleave_shuffled(_: Choices, launch: Launch) -> list[Launch]:
    return [interleave_launch(launch.hidden_size, launch.input)]


_SHUFFLED = "the rows of a weight and of its scales, permuted for the epilogue of a GEMM"
_OF_INTERLEAVE, _OF_SHUFFLE = {"input": "uint8", "batched": False}, {"input": "uint8", "shuffle_rows": 32}
# The kernel ops, then the functions.
INTERLEAVE = Op("interleave", "", {"op": "interleave"}, choices=_OF_INTERLEAVE, function="block_scale_interleave")
SHUFFLE = Op("shuffle", "", {"op": "shuffle"}, choices=_OF_SHUFFLE, function="shuffle_matrix_a", options=_tile)
BLOCK_SCALE_INTERLEAVE = Op(
    "block_scale_interleave", "linear block scales in the 128x4 layout, also for a batch of matrices",
    {"op": "interleave"}, _interleave, choices=_OF_INTERLEAVE,
)  # fmt: skip
SHUFFLE_MATRIX_A = Op("shuffle_matrix_a", _SHUFFLED, {"op": "shuffle"}, _shuffle, choices=_OF_SHUFFLE, options=_tile)
SHUFFLE_MATRIX_SF_A = Op(
    "shuffle_matrix_sf_a",
    _SHUFFLED,
    {"op": "shuffle"},
    choices=_OF_SHUFFLE,
    also=_interleave_shuffled,
    options=_tile,
    row_multiple=lambda _: 128,
)

OPS = (INTERLEAVE, SHUFFLE, BLOCK_SCALE_INTERLEAVE, SHUFFLE_MATRIX_A, SHUFFLE_MATRIX_SF_A)
