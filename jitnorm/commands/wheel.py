"""`jitnorm wheel`: builds wheels of kernels for a target, and of jitnorm itself with a prebuilt launcher."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jitnorm
from jitnorm.commands.console import make_console, size, status
from jitnorm.commands.warm import compiling_allowed
from jitnorm.kernels.target import Target
from jitnorm.store import user_cache
from jitnorm.warm.machine import worker_count
from jitnorm.warm.plan import Job
from jitnorm.wheel.archive import WheelName
from jitnorm.wheel.build import built_kernels, prebuilt_launcher
from jitnorm.wheel.kernels_wheel import kernels_wheel, licence_text, wheel_name
from jitnorm.wheel.own import own_wheel

LARGE_BYTES = 50_000_000
MAX_BYTES = 100_000_000


@dataclass(frozen=True)
class Built:
    """A wheel that was written.

    Attributes:
        path: the file.
        size: size of the file in bytes.
        sha256: digest of the file.
        kernels: number of kernels in the wheel.
        payload_bytes: unpacked size of its kernels and launchers.
    """

    path: Path
    size: int
    sha256: str
    kernels: int
    payload_bytes: int


def build_kernels_wheel(
    jobs: Sequence[Job], out: Path, *, machine: str, workers: int | None, backend: str, headers: Sequence[Path]
) -> Built:
    """Build the wheel of the kernels of one target.

    Args:
        jobs: the kernels, all for one target.
        out: folder to write the wheel to.
        machine: architecture that its launcher and CPU kernels run on.
        workers: number of processes that build; None for as many as cores and memory allow.
        backend: builds CUDA kernels.
        headers: folders of TVM-FFI headers, for each of which a launcher is built; none for the installed headers.

    Raises:
        ToolchainMissingError: a compiler is missing.
        RuntimeError: a kernel cannot be built, or the wheel is too large.
    """
    (target,) = {job.target for job in jobs}
    with compiling_allowed():
        cache = user_cache()
        artifacts = dict(prebuilt_launcher(cache, machine, include) for include in headers or (None,))
        with status() as show_status:
            for key, artifact in built_kernels(jobs, cache, worker_count(len(jobs), workers), machine, backend):
                artifacts[key] = artifact
                show_status(f"{target}: {len(artifacts)} of {len(jobs) + max(1, len(headers))} artifacts")
    name = wheel_name(target, jitnorm.__version__, machine)
    packed = kernels_wheel(name, target, artifacts, licence_text())
    payload_bytes = sum(len(artifact.payload) for artifact in artifacts.values())
    return _write(out, name, packed, len(jobs), payload_bytes)


def build_own_wheels(pure: Path, out: Path, *, machines: Sequence[str], headers: Sequence[Path]) -> list[Built]:
    """Repack jitnorm's pure wheel: once without a launcher, and for each of `machines` with one."""
    with compiling_allowed():
        cache = user_cache()
        content = pure.read_bytes()
        wheels = [own_wheel(content, {}, None)]
        for machine in machines:
            launchers = dict(prebuilt_launcher(cache, machine, include) for include in headers or (None,))
            wheels.append(own_wheel(content, launchers, machine))
    return [_write(out, name, packed, 0, 0) for name, packed in wheels]


def show(wheels: Sequence[Built], *, as_json: bool) -> None:
    """Print the wheels that were written, and warn of large ones."""
    if as_json:
        print(json.dumps([{**asdict(built), "path": str(built.path)} for built in wheels], indent=1))
        return
    console = make_console()
    for built in wheels:
        kernels = f", {built.kernels} kernels, {size(built.payload_bytes)} unpacked" if built.kernels else ""
        console.print(f"{built.path}  {size(built.size)}{kernels}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"  sha256 {built.sha256}", highlight=False, markup=False, soft_wrap=True)
        if built.size > LARGE_BYTES:
            console.print(f"  warning: larger than {LARGE_BYTES:,} bytes; name fewer kernels", style="yellow")


def targets_of_wheels(architectures: Sequence[str]) -> list[Target]:
    """The named targets, each of which gets a wheel; ValueError if there is none."""
    names = [name for text in architectures for name in text.split(",") if name]
    if not names:
        raise ValueError("arch: no target is named; use for example --arch sm_90a")
    return list(dict.fromkeys(map(Target, names)))


def _write(out: Path, name: WheelName, packed: bytes, kernels: int, payload_bytes: int) -> Built:
    if len(packed) > MAX_BYTES:
        raise RuntimeError(
            f"wheel: {name.file} would have {len(packed):,} bytes; at most {MAX_BYTES:,} are allowed; name fewer"
        )
    out.mkdir(parents=True, exist_ok=True)
    path, unfinished = out / name.file, out / f".{name.file}.{os.getpid()}"
    unfinished.write_bytes(packed)
    unfinished.replace(path)
    return Built(path, len(packed), hashlib.sha256(packed).hexdigest(), kernels, payload_bytes)
