"""Schedules worth measuring for layer normalization: how its parameters reach the lanes matters more than anything.

In float32, weight and bias take four times the bytes of a 16-bit row. Lanes load them from the L1 cache for each row or
for two at once, whole or in halves of chunks; their warps copy them to shared memory; or persistent blocks share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .config import KernelConfig
from .norm_candidates import divisions
from .registers import groups_of, held_bytes, residents_of
from .row_schedule import RowSchedule
from .rows_ahead import sharing_rows
from .target import Target

# Options with which a schedule was among the fastest in some of 1670 cases on an H200, by class of rows: parameters
# copied, halves of chunks, neither. docs/measured.md says which combinations were tried.
_OF_FEW = "uqc uqlc qc", "wqlh wuqlh wqh qlh uqlh qh uqh", "wq wuql wuq ql q"
_OPTIONS = {
    "fewest": _OF_FEW,
    "few": _OF_FEW,
    "some": ("uqc uqlc qlc uqcr2", "wuqlh wuqdh qdh qlh uqdh uqlh qh", "wuql ql q"),
    "several": ("qlc uqlc uqdcr2 uqcr2 uqlcr2", "wuqlh wuqdh qdh qlh uqdh uqlh qdhr2", "wuql wuqd qd ql q"),
    "usual": ("uqdcr2 uqcr2 qdcr2 ucr2", "qdh qh qlh uqdh qdhr2 wuqh wuqhr2", "qd q wqdr2"),
    "many": ("uqcr2", "h qh uh hr2 qhr2", "q u r2"),
}
_PARSED = {
    row_class: [RowSchedule.parse(f"1x1{each}") for each in " ".join(options).split()]
    for row_class, options in _OPTIONS.items()
}
# With more chunks per lane, the floats of chunks leave room for too few threads.
_MOST_UNPACKED_CHUNKS = 3
# The parameters of longer rows leave too little of the L1 cache, in which others would find them.
_MOST_COPIED_GROUPS = 24
# Threads of a multiprocessor that leave registers for parameters that are loaded early, or for a few chunks.
_THREADS_OF_EARLY_PARAMETERS, _THREADS = 512, 1024


def layer_norm_candidates(config: KernelConfig, target: Target, row_class: str) -> Iterator[RowSchedule]:
    """Divisions of a row with the ways of its parameters; those that do not fit have to be left out.

    Args:
        config: the configuration of a layer normalization whose rows have several groups.
        target: what it is built for.
        row_class: the class of the calls' rows.

    Example:
        >>> plain = KernelConfig("layernorm", 4096, weight="float32")
        >>> found = layer_norm_candidates(plain, Target("sm_90a"), "many")
        >>> {"4x2uqcr2", "4x2qhr2", "4x2uap8o1"} <= {str(each) for each in found}
        True
    """
    for warps, chunks in divisions(groups_of(config)):
        split = RowSchedule(warps, chunks)
        for options in _PARSED[row_class]:
            is_light = chunks <= _MOST_UNPACKED_CHUNKS or not options.keeps_unpacked
            if is_light and not (options.copies_parameters and groups_of(config) > _MOST_COPIED_GROUPS):
                yield replace(options, warps_per_row=warps, chunks_per_lane=chunks)
        early = replace(split, resident_blocks=residents_of(_THREADS_OF_EARLY_PARAMETERS, split.threads))
        if row_class in ("fewest", "few"):
            yield replace(early, prefetches_weight=True, takes_fast_path=True, favours_latency=True, splits_chunks=True)
            continue
        if row_class in ("some", "several"):
            yield replace(split, takes_fast_path=True, resident_blocks=residents_of(_THREADS, split.threads))
        else:
            yield from (split, replace(split, resident_blocks=residents_of(_THREADS, split.threads)))
        if row_class != "some":
            yield from sharing_parameters(config, target, split)


def sharing_parameters(config: KernelConfig, target: Target, split: RowSchedule) -> Iterator[RowSchedule]:
    """Persistent blocks whose rows share the parameters of layer normalization; none for other norms."""
    if config.op != "layernorm" or not config.has_weight:
        return
    is_light = held_bytes(config) == 2 and split.chunks_per_lane <= _MOST_UNPACKED_CHUNKS
    for is_kept in (True, False) if is_light else (False,):
        yield sharing_rows(config, target, replace(split, keeps_unpacked=is_kept))
