"""Packs the wheel of kernels for one target: name, metadata and file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jitnorm.cache import Artifact
from jitnorm.cache.wheels import GROUP
from jitnorm.kernels.target import Target
from jitnorm.toolchains.zig import GLIBC
from jitnorm.wheel.archive import WheelName, pack
from jitnorm.wheel.contents import cache_files

_SUMMARY = "Prebuilt kernels of jitnorm for {target}"
_README = """\
{count} kernels for {target}, built by: {builders}.

Install it beside jitnorm: kernels are found by content, and those that do not match are never used.
`jitnorm doctor` shows what it serves.
"""
_INIT = '"""Prebuilt kernels of jitnorm for {target}; jitnorm reads the folder beside this file."""\n'


def platform_tag(machine: str) -> str:
    """The tag of wheels with host code for a machine."""
    return f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}"


def wheel_name(target: Target, version: str, machine: str) -> WheelName:
    """The name of a target's wheel, such as ``jitnorm_kernels_sm90a-0.1.0-py3-none-...``."""
    return WheelName(f"jitnorm_kernels_{str(target).replace('_', '')}", version, platform_tag(machine))


def kernels_wheel(name: WheelName, target: Target, artifacts: Mapping[str, Artifact], licence: bytes) -> bytes:
    """Pack a wheel of artifacts.

    Args:
        name: its name.
        target: the target of the kernels.
        artifacts: kernels, and the launcher, by key.
        licence: the text of the licence.
    """
    package = name.distribution
    files = cache_files(f"{package}/cache", artifacts) | {
        f"{package}/__init__.py": _INIT.format(target=target).encode()
    }
    entry_points = f"[{GROUP}]\n{package.removeprefix('jitnorm_kernels_')} = {package}\n"
    metadata = {
        "METADATA": _metadata(name, target, artifacts).encode(),
        "entry_points.txt": entry_points.encode(),
        "licenses/LICENSE": licence,
    }
    return pack(name, files, metadata)


def _metadata(name: WheelName, target: Target, artifacts: Mapping[str, Artifact]) -> str:
    kernels = [artifact for artifact in artifacts.values() if artifact.manifest["kind"] == "kernel"]
    builders = sorted({str(kernel.manifest["toolchain"]) for kernel in kernels})
    head = (
        ("Metadata-Version", "2.4"),
        ("Name", name.distribution.replace("_", "-")),
        ("Version", name.version),
        ("Summary", _SUMMARY.format(target=target)),
        ("License-Expression", "Apache-2.0"),
        ("License-File", "LICENSE"),
        ("Requires-Python", ">=3.10"),
        # Other versions of jitnorm generate other sources, which these kernels do not match.
        ("Requires-Dist", f"jitnorm=={name.version}"),
        ("Description-Content-Type", "text/markdown"),
    )
    lines = "".join(f"{field}: {value}\n" for field, value in head)
    return f"{lines}\n{_README.format(count=len(kernels), target=target, builders='; '.join(builders) or 'nobody')}"


def licence_text() -> bytes:
    """Read jitnorm's licence from the repository, or from the metadata of the installed package."""
    beside = Path(__file__).parents[2] / "LICENSE"
    if beside.is_file():
        return beside.read_bytes()
    from importlib.metadata import files

    found = next((path for path in files("jitnorm") or () if path.name == "LICENSE"), None)
    if found is None:
        raise ValueError("wheel: the licence of jitnorm is neither in its repository nor in its metadata; reinstall it")
    return Path(str(found.locate())).read_bytes()
