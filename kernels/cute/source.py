"""The source of a kernel in CuTe-DSL: the modules that it is made of, as one text; imports no cutlass.

The text is not what is run: `build` imports the same modules. It is there to be read and to be a part of cache keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from ..config import KernelConfig
from ..generator import Source
from ..target import Target
from .offer import check
from .schedule import cute_schedule

_FOLDER = Path(__file__).parent
# What `build` and the modules of this folder that it imports take from others.
SHARED_MODULES = (
    "activations.py",
    "all_reduce_rules.py",
    "all_reduce_schedule.py",
    "arguments.py",
    "backward.py",
    "branch_rules.py",
    "config.py",
    "config_rules.py",
    "config_text.py",
    "copied_parameters.py",
    "dtypes.py",
    "early_activations.py",
    "entry_point.py",
    "extents.py",
    "factor_blocks.py",
    "field_types.py",
    "finish_rules.py",
    "formats.py",
    "interface.py",
    "item_ops.py",
    "launch_recipe.py",
    "mhc_rules.py",
    "numerics.py",
    "packed_rows.py",
    "padding.py",
    "prenorm_rows.py",
    "quant_rules.py",
    "quant_spec.py",
    "registers.py",
    "resident_rows.py",
    "rope_rules.py",
    "row_classes.py",
    "row_counts.py",
    "row_ops.py",
    "row_parts.py",
    "row_schedule.py",
    "rows_ahead.py",
    "schedule.py",
    "short_rows.py",
    "side_by_side.py",
    "spelling.py",
    "skipped_chunks.py",
    "split_chunks.py",
    "tabulated_rows.py",
    "target.py",
)
_CONFIG, _TARGET = "# config: ", "# target: "


def cute_source(config: KernelConfig, target: Target) -> Source:
    """The source of `config` for `target`.

    Raises:
        ValueError: there is no such kernel in CuTe-DSL.

    Example:
        >>> source = cute_source(KernelConfig("rmsnorm", 4096), Target("sm_90a"))
        >>> source.text.splitlines()[1]
        '# target: sm_90a'
    """
    check(config, target)
    config = replace(config, schedule="")  # which the kernel does not heed
    schedule, pipeline = cute_schedule(config, target)
    heading = f"{_CONFIG}{config}\n{_TARGET}{target}\n# {schedule!r}\n# {pipeline or 'no pipeline'}\n"
    return Source(config, target, heading + _modules(), language="cute")


def parse_heading(text: str) -> tuple[KernelConfig, Target]:
    """The configuration and the target of a source; ValueError if it is none."""
    first, second, *_ = (*text.split("\n", 2), "", "")
    if not (first.startswith(_CONFIG) and second.startswith(_TARGET)):
        raise ValueError(f"source: begins with {text[:80]!r}, not with the heading of a source for CuTe-DSL")
    return KernelConfig.parse(first.removeprefix(_CONFIG)), Target(second.removeprefix(_TARGET))


@cache
def _modules() -> str:
    """The texts of all modules, by their names."""
    own = sorted(_FOLDER.glob("*.py"))
    paths = [*(_FOLDER.parent / name for name in SHARED_MODULES), *own]
    return "".join(
        f"\n# jitnorm/kernels/{path.relative_to(_FOLDER.parent).as_posix()}\n{path.read_text(encoding='utf-8')}"
        for path in paths
    )
