"""Finds the NVRTC libraries of this machine, and chooses the one for a target and a driver.

Machine code from any CUDA 12 runs on drivers of CUDA 12 or later (branch 525), and from CUDA 13 on drivers of CUDA 13
or later (branch 580): NVIDIA's CUDA Compatibility, "Minor Version Compatibility",
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.toolchains.errors import ToolchainMissingError
from jitnorm.toolchains.search import on_sys_path, toolkit_roots

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

Version = tuple[int, int]  # a CUDA version: major, minor

REMEDY = (
    'pip install "jitnorm[cuda]" (drivers of branch 580 or later) or "jitnorm[cuda12]" (525 or later), '
    "or set CUDA_HOME to a CUDA toolkit, 12.4 or later"
)
# The option --minimal exists from 12.4 on.
OLDEST: Version = (12, 4)
# The first CUDA that builds for a target, if the oldest does not.
_FIRST_CUDA_OF: dict[str, Version] = {
    **dict.fromkeys(("sm_100a", "sm_120a"), (12, 8)),
    **dict.fromkeys(("sm_103a", "sm_121a", "sm_100f", "sm_120f"), (12, 9)),
    "sm_110a": (13, 0),
}
# Where wheels have the library, by major version.
_IN_WHEELS = {13: "nvidia/cu13/lib", 12: "nvidia/cuda_nvrtc/lib"}
_SYSTEM_FOLDERS = ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


@dataclass(frozen=True)
class NvrtcLibrary:
    """An NVRTC library.

    Attributes:
        path: its file.
        version: its CUDA version; minor 0 if no adjacent file tells.
    """

    path: Path
    version: Version

    def builds_for(self, target: Target) -> bool:
        """Whether it knows a CUDA target."""
        return self.version >= _FIRST_CUDA_OF.get(target.name, OLDEST)

    def runs_on(self, driver: Version) -> bool:
        """Whether a driver that supports this CUDA version loads what the library builds."""
        return self.version[0] <= driver[0]

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]} ({self.path})"


def installed_libraries() -> list[NvrtcLibrary]:
    """The libraries on this machine, at most one per major version: a wheel's, else a toolkit's.

    Raises:
        ToolchainMissingError: there is none, or none from 12.4 on.
    """
    folders = _folders()
    found = [path for major in _IN_WHEELS if (path := _find(major, folders)) is not None]
    libraries = [NvrtcLibrary(path, _version_of(path)) for path in found]
    usable = [library for library in libraries if library.version >= OLDEST]
    if usable:
        return usable
    wheels = [f"{folder}/{_name(major)} on sys.path" for major, folder in _IN_WHEELS.items()]
    looked = [*(f"{library}, which is too old" for library in libraries), *wheels, *folders]
    raise ToolchainMissingError(f"NVRTC ({_name(13)}, {_name(12)})", looked, REMEDY)


def choose(
    libraries: Sequence[NvrtcLibrary], target: Target | None = None, driver: Version | None = None
) -> NvrtcLibrary:
    """Choose the newest library whose machine code the driver loads, else the newest.

    Args:
        libraries: the libraries to choose from, at least one.
        target: what to build for; None for any target.
        driver: the CUDA version that the driver supports; None without a driver, when building for other machines.

    Raises:
        ToolchainMissingError: none builds for the target.
    """
    able = [library for library in libraries if target is None or library.builds_for(target)]
    if not able:
        assert target is not None
        major, minor = _FIRST_CUDA_OF[target.name]
        extra = "cuda" if major == 13 else "cuda12"
        remedy = f'pip install "jitnorm[{extra}]", or set CUDA_HOME to a CUDA toolkit, {major}.{minor} or later'
        raise ToolchainMissingError(f"an NVRTC that builds for {target}", list(map(str, libraries)), remedy)
    loadable = [library for library in able if driver is not None and library.runs_on(driver)]
    return max(loadable or able, key=lambda library: library.version)


def majors(libraries: Iterable[NvrtcLibrary]) -> set[int]:
    """The major versions among libraries."""
    return {library.version[0] for library in libraries}


def _find(major: int, folders: Sequence[str]) -> Path | None:
    in_wheel = on_sys_path(f"{_IN_WHEELS[major]}/{_name(major)}")
    if in_wheel is not None:
        return in_wheel
    candidates = (Path(folder, _name(major)) for folder in folders)
    return next((path.absolute() for path in candidates if os.path.isfile(path)), None)


def _folders() -> list[str]:
    """The folders of toolkits, in order of preference."""
    conda = os.environ.get("CONDA_PREFIX")
    roots = ([Path(conda)] if conda else []) + toolkit_roots()
    folders = [str(root / name) for root in roots for name in ("lib64", "lib")]
    folders += filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    return [*folders, *_SYSTEM_FOLDERS]


def _name(major: int) -> str:
    return f"libnvrtc.so.{major}"


def _version_of(library: Path) -> Version:
    """The version of a library, from the name of its second half in the same folder."""
    major = int(library.name.rpartition(".")[2])
    halves = library.parent.glob(f"libnvrtc-builtins.so.{major}.*")
    minors = [half.name.rpartition(".")[2] for half in halves]
    return major, max((int(minor) for minor in minors if minor.isdecimal()), default=0)
