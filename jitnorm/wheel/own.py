"""Repacks jitnorm's own wheel to make it reproducible, optionally with a prebuilt launcher."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO

from jitnorm.cache import Artifact
from jitnorm.store import PREBUILT
from jitnorm.wheel.archive import WheelName, pack
from jitnorm.wheel.contents import cache_files
from jitnorm.wheel.kernels_wheel import platform_tag

PURE_TAG = "py3-none-any"
_REWRITTEN = ("RECORD", "WHEEL")


def own_wheel(pure: bytes, launchers: Mapping[str, Artifact], machine: str | None) -> tuple[WheelName, bytes]:
    """Repack a wheel of jitnorm, and return it with its name.

    Args:
        pure: the wheel that setuptools builds.
        launchers: launchers to add, by key; none gives a wheel for any machine.
        machine: the machine that the launchers run on; None without launchers.

    Raises:
        ValueError: ``pure`` is not a pure wheel of jitnorm.
    """
    with zipfile.ZipFile(BytesIO(pure)) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    info = next((name.partition("/")[0] for name in content if name.endswith(".dist-info/WHEEL")), "")
    distribution, _, version = info.removesuffix(".dist-info").partition("-")
    if distribution != "jitnorm" or f"Tag: {PURE_TAG}" not in content[f"{info}/WHEEL"].decode().splitlines():
        raise ValueError(f"wheel: is {info or 'something else'}; expected a wheel of jitnorm tagged {PURE_TAG}")
    metadata = {name.partition("/")[2]: data for name, data in content.items() if name.startswith(f"{info}/")}
    files = {name: data for name, data in content.items() if not name.startswith(f"{info}/")}
    name = WheelName(distribution, version, platform_tag(machine) if machine else PURE_TAG)
    files |= cache_files(f"jitnorm/{PREBUILT}", launchers)
    return name, pack(name, files, {path: data for path, data in metadata.items() if path not in _REWRITTEN})
