"""Schedules worth measuring for layer normalization: how its parameters reach the lanes matters more than anything.

In float32, weight and bias take four times the bytes of a 16-bit row. Lanes load them from the L1 cache for each row or
for two at once, whole or in halves of chunks; their warps copy them to shared memory; or persistent blocks share them
there, or keep them there or in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .config import KernelConfig
from .norm_candidates import divisions, in_divisions, parsed
from .registers import groups_of, held_bytes
from .row_schedule import RowSchedule
from .rows_ahead import sharing_rows
from .schedule_form import ScheduleForm
from .target import Target

# Options and about how many threads a multiprocessor should have room for, by class of rows. They were among the
# fastest in some of 2170 cases on an H200, or a model of these predicts it; those that skip chunks (`g`) or stay
# resident (`k`) are chosen by what they gain in 868 cases. docs/choices.md has figures.
_OF_FEW = "uqc uqlc qc wqlh wuqlh wqh qlh uqlh qh uqh wq wuql wuq ql q wqlht512 "
_OPTIONS = {
    "fewest": _OF_FEW + "uqct1024 qct1024",
    "few": _OF_FEW + "uqct256 uqlht256 wuqlt1024 wuldht256 uqlct256 uqlct1024",
    "some": "qdg wuqhkt512 uqc uqlc qlc uqcr2 wuqlh wuqdh qdh qlh uqdh uqlh qh wuql ql q qt1024 uldct1024 qdht1024 "
    "ldt1024 wuqldt1024 qdt768 uqlct256",
    "several": "qdg qlg wuqhkt512 wqhkt512 wuqkt1024 qlc uqlc uqdcr2 uqcr2 uqlcr2 wuqlh wuqdh qdh qlh uqdh uqlh qdhr2 "
    "wuql wuqd qd ql q qt1024 qdht1024 uldct1024 qdt768 wqlt1024 uqdcr2t256",
    "usual": "qdg qdgt1024 wuqkt512 wuqkt1024 wuqhkt512 wqkt1024 uqdcr2 uqcr2 qdcr2 ucr2 qdh qh qlh uqdh qdhr2 wuqh "
    "wuqhr2 qd q wqdr2 t0 t1024 qdt768 uqdcr2t256 qlt512 qdht1024",
    "many": "qdg wuqkt512 qdgt1024 wuqhkt512 wuqkt1024 g uqcr2 h qh uh hr2 qhr2 q u r2 t0 t1024 qd qdt512 ldt768 "
    "wuldt768 uqdcr2t256 qdt768",
}
# The same for rows of a branch or with a modulation, which lanes hold as floats.
_OPTIONS_OF_FLOATS = {
    "fewest": "ht256 wqht512",
    "few": "qlht256 wqht256 qdht256 wqlht256",
    "some": "qlht512 dht1024 qlht256 qdht512",
    "several": "qlht512 qdht1024 qlht256",
    "usual": "qht256 qdht1024 qdht512",
    "many": "qdht512 qlht768 qdh",
}
_FORMS = {row_class: parsed(options) for row_class, options in _OPTIONS.items()}
_FORMS_OF_FLOATS = {row_class: parsed(options) for row_class, options in _OPTIONS_OF_FLOATS.items()}
# Persistent blocks that keep the parameters in shared memory, and pairs of them for rows of so many groups.
_KEEPING = ["2uqckt512", "2uqckt768", "2uqckt1024", "2uqckr2t512", "2uqckr2t768", "1uqckt1024", "4uqckt512"]
_KEEPING_IN_PAIRS = ["2uqckb2t512", "2uqckb2t1024", "2uqckr2b2t512"]
_GROUPS_OF_PAIRS = 16
# Clusters whose blocks load their part of the parameters once for two rows: few rows of so many groups gain.
_CLUSTERED = ["2uqcr2b4", "2uqcr2b8", "2qcr2b8", "2uqcr2b2"]
_CLUSTERED_GROUPS = 34
# With more chunks per lane, the floats of chunks leave room for too few threads.
_MOST_UNPACKED_CHUNKS = 3
# The parameters of longer rows leave too little of the L1 cache, in which others would find them.
_MOST_COPIED_GROUPS = 24


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
    if row_class not in ("fewest", "few", "some"):
        for warps, chunks in divisions(groups_of(config)):
            yield from sharing_parameters(config, target, RowSchedule(warps, chunks))
    holds_floats = held_bytes(config) > 2
    if not holds_floats:
        yield from _copying(config, target, row_class)
    for form in [*(_FORMS_OF_FLOATS[row_class] if holds_floats else ()), *_FORMS[row_class]]:
        if form.options.copies_parameters and groups_of(config) > _MOST_COPIED_GROUPS:
            continue
        for divided in in_divisions(config, form):
            if not divided.keeps_unpacked or divided.chunks_per_lane <= _MOST_UNPACKED_CHUNKS:
                yield divided


def sharing_parameters(config: KernelConfig, target: Target, split: RowSchedule) -> Iterator[RowSchedule]:
    """Persistent blocks whose rows share the parameters of layer normalization; none for other norms."""
    if config.op != "layernorm" or not config.has_weight:
        return
    is_light = held_bytes(config) == 2 and split.chunks_per_lane <= _MOST_UNPACKED_CHUNKS
    for is_kept in (True, False) if is_light else (False,):
        yield sharing_rows(config, target, replace(split, keeps_unpacked=is_kept))


def _copying(config: KernelConfig, target: Target, row_class: str) -> Iterator[RowSchedule]:
    """Blocks that copy the parameters for several rows: persistent ones, or clusters of few long rows."""
    groups = groups_of(config)
    if row_class in ("fewest", "few"):
        forms = _CLUSTERED if row_class == "few" and groups >= _CLUSTERED_GROUPS else []
    else:
        forms = [*(_KEEPING_IN_PAIRS if groups >= _GROUPS_OF_PAIRS else ()), *_KEEPING]
    for form in forms:
        found = ScheduleForm.parse(form).schedule(config, target)
        if found and found.copies_parameters:
            yield found
