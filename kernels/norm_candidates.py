"""Schedules worth measuring for norms: divisions of a row with the options that were among the fastest.

Few options have an effect of their own. A second chunk per lane wants registers, which fewer resident blocks leave it;
halves of chunks want the weight late; so combinations are listed, by class of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .config import KernelConfig
from .numerics import ceil_div, round_up
from .registers import groups_of, residents_of, with_room_for_weight
from .row_schedule import RowSchedule
from .schedule import MOST_WARPS
from .schedule_form import ScheduleForm

# Options and about how many threads a multiprocessor should have room for. They were chosen one after another by what a
# model of 95359 times on an H200 predicts at other lengths; before them stand blocks that skip chunks (`g`) or stay
# resident (`k`), chosen by what they gain in 2528 cases. docs/choices.md has figures.
_OF_FEW = (
    "wqt768 lt512 wqht768 qct512 wqlt768 wqlht768 wuqlt512 qh eqt512 weqh weqlt768 wq wuqldht768 wuqldt1024 qldh "
    "uldht768 wuqt768 wuqht512 wuqlht768 wuql"
)
_OPTIONS = {
    "fewest": _OF_FEW,
    "few": _OF_FEW,
    "some": "wqdg qdg lt768 wqht768 wqd wqlt768 qdct512 qt1024 qh qdht1024 wqlht1024 qdt1024 weqlt768 wqt768 wqdht1024 "
    "uqdt1024 wqh qht768 wqdt1024 eqt1024 wuqd qd",
    "several": "wqdg wuqdg wqkt768 qt1024 wqh lt768 wqd wqlt768 qht768 qdct512 wqlht1024 qdh t512 uqdht1024 wqdt1024 "
    "wqdh uqdt1024 weqlt768 wqht768 qdt1024 wqdht1024 eqt1024 ct512",
    "usual": "wqdgt1024 wqdg qdg uqdgt1024 wqkt1024 wuqkt512 qt1024 t512 wqh wqd qh wqt1024 qdct512 qdht1024 qd lt1024 "
    "wql wqdh qdt1024 weqht768 wuqd qdh qlht512 ct512 eqt1024 weq",
    "many": "qdg g wqdgt1024 qdgt1024 uqdg wqkt1024 t0 qt1024 qh wq lt512 qr2 qct512 q qdht1024 wqlt1024 ul wqdhr2 "
    "qldt1024 qd eqlr2t512 wqd qdh eqt1024 qld uqr2",
}
# The same for rows that the blocks of a cluster (`b`) share, chosen as well, by 63,000 times of 3118 cases. On an H200,
# RMSNorm to FP8 of 1 and 16 x 12288 takes 0.77 of the time with 24x1wuqlb8, of 192 and 384 x 27648 0.92 with 28x2wuqb4.
_CLUSTERED = {
    "fewest": "wqlb8 qcb4t512 wqlhb8t512 weqlb8 wlb8 wqlb4t512 wuqlb8 qcb8t512 whb8t512 wuqlb4 qhb8t512 wqb8t512",
    "few": "wuqlb2 wqhb2 wlb2 wqlb2t512 wqhb2t512 weqlb2 wqlhb2 wqhb2t1024 qdhb2 weqhb2 uqcb2t512 wuqdb4",
    "some": "wqhb2 wqdb2 qdhb4 wqb8 qdb2 lb2 weqlb2 wqdhb8 wlb8 wqdhb2 wuqlb2 wb4",
    "several": "wqkb2t512 wqkr2b2t512 wqhb2 qhb4 wqb8 qcb2t512 wqdb2 wqhb4 b2 weqb2 wuqb2 qdhb8 wqdhb2 lb2t512",
    "usual": "wqkb2t512 wqhb2 qdb2 wqhb4 qhb4 qdhb8 qcb2t512 qdhb4 b2",
    "many": "wqkb2t512 wqhb2 b4 wqhb8 qhb4 wqb2 db2t1024 weqhb4 qdhb8",
}
# Rows of so many groups gain by clusters: shorter ones have enough threads in a block, or blocks on a multiprocessor.
_CLUSTERED_GROUPS = {"fewest": 5, "few": 5, "some": 9, "several": 9, "usual": 24, "many": 32}
# Those of so many gain if pairs of blocks stay resident: they take longer than sums take from one block to the other.
_PAIRED_GROUPS = 40


def parsed(options: str) -> list[ScheduleForm]:
    """The forms of options in a table, with one chunk per lane where a row is not divided yet."""
    return [ScheduleForm.parse(f"1{each}") for each in options.split()]


_FORMS = {row_class: parsed(options) for row_class, options in _OPTIONS.items()}
_CLUSTERED_FORMS = {row_class: parsed(options) for row_class, options in _CLUSTERED.items()}
# Rows of a single warp may share blocks.
_SHARING_ROWS = (2, 4)
# Rows of so many groups may have eight chunks per lane.
_LONG_GROUPS = 48


def norm_candidates(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Divisions of a row among the warps of one block, with options; those that do not fit have to be left out.

    Args:
        config: the configuration of a norm whose rows have several groups.
        row_class: the class of the calls' rows.

    Example:
        >>> found = {str(each) for each in norm_candidates(KernelConfig("rmsnorm", 9216, residual=True), "few")}
        >>> {"18x1wqho1", "9x2wqo3", "6x3lo3"} <= found
        True
    """
    for form in _FORMS[row_class]:
        for divided in in_divisions(config, form):
            yield divided
            if divided.warps_per_row == 1:
                yield from (_residing(replace(divided, rows_per_block=rows), form) for rows in _SHARING_ROWS)


def in_divisions(config: KernelConfig, form: ScheduleForm) -> Iterator[RowSchedule]:
    """Divisions of a row among the warps of one block, with the options of a form.

    Example:
        >>> norm = KernelConfig("rmsnorm", 4096)
        >>> [str(each) for each in in_divisions(norm, ScheduleForm.parse("1wqt512"))]
        ['8x1wqo2', '4x2wqo4', '3x3wqo5', '2x4wqo8']
    """
    options = _options(config, form)
    for warps, chunks in divisions(groups_of(config)):
        yield _residing(replace(options, warps_per_row=warps, chunks_per_lane=chunks), form)


def clustered_norms(config: KernelConfig, row_class: str) -> Iterator[RowSchedule]:
    """Divisions of a row among the blocks of a cluster, with options; none of rows too short to gain by them.

    Args:
        config: the configuration of a norm.
        row_class: the class of the calls' rows.

    Example:
        >>> found = {str(each) for each in clustered_norms(KernelConfig("rmsnorm", 12288), "fewest")}
        >>> {"24x1wqlb8", "24x1wqlb4o3", "16x2wuqlb8"} <= found
        True
    """
    if groups_of(config) >= _CLUSTERED_GROUPS[row_class]:
        for form in _CLUSTERED_FORMS[row_class]:
            if not form.options.stays_resident or groups_of(config) >= _PAIRED_GROUPS:
                yield from _in_clusters(config, form)


def _in_clusters(config: KernelConfig, form: ScheduleForm) -> Iterator[RowSchedule]:
    """Divisions of a row among the blocks of a form, with its options."""
    options, blocks = _options(config, form), form.options.blocks_per_row
    for chunks in (1, 2, 4):
        divided = in_cluster(groups_of(config), blocks, chunks)
        shared = replace(
            options,
            warps_per_row=divided.warps_per_row,
            chunks_per_lane=divided.chunks_per_lane,
            blocks_per_row=blocks,
        )
        yield with_room_for_weight(config, _residing(shared, form))


def in_cluster(groups: int, blocks: int, chunks: int) -> RowSchedule:
    """A row that so many blocks share, with so many chunks per lane.

    Example:
        >>> str(in_cluster(23, 8, 2))
        '16x2b8'
    """
    warps = round_up(ceil_div(groups, chunks), blocks)
    return RowSchedule(warps, ceil_div(groups, warps), blocks_per_row=blocks)


def _options(config: KernelConfig, form: ScheduleForm) -> RowSchedule:
    """The options of a form that a configuration can have: without dependents, none are signalled late."""
    return replace(form.options, signals_late=form.options.signals_late and config.pdl)


def _residing(divided: RowSchedule, form: ScheduleForm) -> RowSchedule:
    """A schedule with as many resident blocks as its threads and a form say."""
    if not form.resident_threads:
        return divided
    return replace(divided, resident_blocks=residents_of(form.resident_threads, divided.threads))


def divisions(groups: int) -> Iterator[tuple[int, int]]:
    """Warps that share a row, up to 32, and chunks of their lanes, up to four, of long rows also eight.

    Example:
        >>> list(divisions(9)), list(divisions(64))
        ([(9, 1), (5, 2), (3, 3)], [(32, 2), (22, 3), (16, 4), (8, 8)])
    """
    for chunks in (1, 2, 3, 4, 8):
        warps = ceil_div(groups, chunks)
        is_even = chunks == ceil_div(groups, warps)
        if is_even and warps <= MOST_WARPS and (chunks < 8 or groups >= _LONG_GROUPS):
            yield warps, chunks
