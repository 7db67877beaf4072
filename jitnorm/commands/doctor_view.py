"""How the doctor's report is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from jitnorm.commands.console import make_console
from jitnorm.commands.doctor import Report, examine
from jitnorm.commands.units import size

_Line = tuple[str, bool | None, str]  # the thing; whether it is there, None for neither good nor bad; details


def show_doctor(*, as_json: bool) -> bool:
    """Examine this machine and print what was found; return whether any kernel can be built here."""
    report = examine()
    if as_json:
        print(json.dumps({**asdict(report), "can_build": report.can_build}, indent=1, default=str))
        return report.can_build
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for thing, is_there, details in _lines(report):
        table.add_row(thing, _mark(is_there), Text(details))
    make_console().print(table)
    return report.can_build


def _mark(is_there: bool | None) -> str:
    if is_there is None:
        return "[dim]-[/]"
    return "[green]ok[/]" if is_there else "[red]no[/]"


def _lines(report: Report) -> Iterator[_Line]:
    yield "jitnorm", True, f"{report.jitnorm}, Python {report.python}, TVM-FFI {report.tvm_ffi}"
    yield "launcher", not report.launcher_problem, report.launcher_problem or "ready"
    yield "driver", True if report.driver else None, report.driver or report.driver_problem
    for gpu in report.gpus:
        details = f"{gpu.name}, compute capability {gpu.capability}, "
        yield f"cuda:{gpu.ordinal}", not gpu.problem, details + (gpu.target or gpu.problem)
    for toolchain in report.toolchains:
        details = f"{toolchain.identity}; {toolchain.location}" if toolchain.available else toolchain.remedy
        yield toolchain.name, toolchain.available or None, details
    yield "targets", report.can_build, ", ".join(report.targets) or "none can be built"
    yield "cache", not report.cache.problem, _cache_details(report)
    for framework in report.frameworks:
        details = framework.version or f"not installed; {framework.remedy}"
        yield framework.name, True if framework.version else None, details


def _cache_details(report: Report) -> str:
    cache = report.cache
    held = f"{cache.path}: {cache.entries} entries, {size(cache.payload_bytes)}, trust: {cache.trust}"
    return f"{held}; {cache.problem}" if cache.problem else held
