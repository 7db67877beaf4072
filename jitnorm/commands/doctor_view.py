"""How the doctor's report is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from rich.table import Table

from jitnorm.commands.console import cell, print_json, print_table
from jitnorm.commands.doctor import Report, examine
from jitnorm.commands.doctor_cache import CacheState, MissState, SigningState, TierState
from jitnorm.commands.units import size
from jitnorm.wheel.describe import WheelDescription

_Line = tuple[str, bool | None, str]  # the thing; whether it is there, None for neither good nor bad; details


def show_doctor(*, as_json: bool) -> bool:
    """Examine this machine and print what was found; return whether any kernel can be built here."""
    report = examine()
    if as_json:
        print_json({**asdict(report), "can_build": report.can_build})
        return report.can_build
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for thing, is_there, details in _lines(report):
        table.add_row(thing, _mark(is_there), cell(details))
    print_table(table)
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
    yield "cache", not report.cache.problem, _cache_details(report.cache)
    for tier in report.tiers:
        yield "tier", not tier.problem, _tier_details(tier)
    for wheel in report.wheels:
        yield "wheel", wheel.serves_fully, _wheel_details(wheel)
    yield "keys", not report.signing.problem, _key_details(report.signing)
    yield "misses", not report.misses.problem, _miss_details(report.misses)
    for variable in report.variables:
        details = f"{variable.name}={variable.value}"
        yield "variable", not variable.problem, f"{details}: {variable.problem}" if variable.problem else details
    for framework in report.frameworks:
        details = framework.version or f"not installed; {framework.remedy}"
        yield framework.name, True if framework.version else None, details


def _cache_details(cache: CacheState) -> str:
    budget = "of disk space, no limit" if cache.budget_bytes is None else f"of {size(cache.budget_bytes)} of disk space"
    held = f"{cache.path}: {cache.entries} entries, {size(cache.total_bytes)} {budget}, trust: {cache.trust}"
    if cache.quarantine_bytes:
        held += f", {size(cache.quarantine_bytes)} in quarantine"
    if cache.has_locks is False:
        held += ", no file locks: processes that miss together all build"
    return f"{held}; {cache.problem}" if cache.problem else held


def _tier_details(tier: TierState) -> str:
    if tier.problem:
        return f"{tier.name}: {tier.problem}"
    access = "read and written" if tier.is_writable else "only read"
    entries = "" if tier.entries is None else f", {tier.entries} entries"
    held = "" if tier.payload_bytes is None else f", {size(tier.payload_bytes)}"
    return f"{tier.name}: {access}{entries}{held}"


def _wheel_details(wheel: WheelDescription) -> str:
    title = f"{wheel.name} {wheel.version}"
    if wheel.problem:
        return f"{title}: {wheel.problem}"
    held = []
    if wheel.kernels:
        held.append(f"{wheel.serving} of {wheel.kernels} kernels for {', '.join(wheel.targets)} serve here")
    if wheel.launchers:
        held.append("its launcher serves here" if wheel.serving_launchers else "its launcher is for another TVM-FFI")
    refused = [f"{count} refused: {reason}" for reason, count in sorted(wheel.refused.items())]
    return f"{title}: {'; '.join([*held, size(wheel.payload_bytes), *refused])}"


def _key_details(keys: SigningState) -> str:
    trusted = f"trusted are {', '.join(keys.trusted)}" if keys.trusted else "no signatures are needed"
    signs = f"; {keys.signs_with} signs" if keys.signs_with else ""
    return keys.problem or trusted + signs


def _miss_details(misses: MissState) -> str:
    meanings = {"auto": "compiled", "record": "compiled and noted", "deny": "noted, and an error"}
    meaning = meanings.get(misses.mode, "")
    record = f"; {misses.record} has {size(misses.record_bytes)}" if misses.record_bytes else ""
    return misses.problem or meaning + record
