"""nvcc, run as a process: compiles CUDA source to cubins on machines with a CUDA toolkit."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.cxx import find_cxx
from jitnorm.toolchains.errors import ToolchainMissingError
from jitnorm.toolchains.identity import MemoFolder, memoised
from jitnorm.toolchains.process import ask, compile_file
from jitnorm.toolchains.search import executable, is_elf, on_path, on_sys_path, toolkit_roots
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace, work_in

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_IN_WHEEL = "nvidia/cu13/bin/nvcc"
_REMEDY = 'pip install "jitnorm[nvcc]", or set CUDA_HOME to a CUDA toolkit'
_SOURCE_NAME = "kernel.cu"
_OPTIONS = (
    *("-cubin", "-std=c++17", "-O3"),
    *("--fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"),
    # By default nvcc passes the absolute path, which ends up in the names of internal symbols.
    *("-Xcicc", "--orig_src_path_name", "-Xcicc", _SOURCE_NAME),
)


class Nvcc(Toolchain):
    """The nvcc found in CUDA_PATH, CUDA_HOME, PATH or the PyPI wheels, in this order; see `Toolchain`.

    Preprocesses with the host's C++ compiler, the same that the toolchain cxx uses.
    """

    name = "nvcc"

    def __init__(
        self, memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
    ) -> None:
        super().__init__(memo_dir, workplaces)
        self._host_compiler = _find_host_compiler()
        self._nvcc = _find_nvcc(self._host_compiler)
        self._ptxas = _part(self._nvcc, "ptxas")
        self._cicc = _part(self._nvcc, "../nvvm/bin/cicc", "cicc")

    @property
    def location(self) -> Path:
        """The real nvcc, behind links and wrappers."""
        return self._nvcc

    def identity(self) -> str:
        """See `Toolchain.identity`."""
        # Wheels can differ in version, and each of the three affects the cubin.
        tools = [self._nvcc, self._cicc, self._ptxas]
        return memoised(tools, self._probe, self._memo_dir)

    def flags(self, target: Target) -> tuple[str, ...]:
        """See `Toolchain.flags`."""
        return (f"-arch={target}", *_OPTIONS)

    def compile(self, source: str, target: Target) -> bytes:
        """See `Toolchain.compile`."""
        if target.is_cpu:
            raise ValueError("target: nvcc builds for CUDA targets, not for cpu")
        output_name = "kernel.cubin"
        files = ("-ccbin", str(self._host_compiler), _SOURCE_NAME, "-o", output_name)
        return compile_file(
            (str(self._nvcc), *self.flags(target), *files),
            source=source,
            source_name=_SOURCE_NAME,
            output_name=output_name,
            toolchain=self.name,
            target=target,
            workplaces=self._workplaces,
        )

    def _probe(self) -> str:
        builds = (
            _only_match(r"^Build (\S+)$", ask((str(self._nvcc), "--version"))),
            _only_match(r"^// Compiler Build ID: (\S+)$", work_in(self._workplaces, self._empty_ptx)),
            _only_match(r"^Build (\S+)$", ask((str(self._ptxas), "--version"))),
        )
        return "nvcc {}, cicc {}, ptxas {}".format(*builds)

    def _empty_ptx(self, folder: Path) -> str:
        """The PTX of an empty input, the only place where cicc names its build."""
        (folder / "empty.ii").touch()
        ask((str(self._cicc), "-arch", "compute_80", "empty.ii", "-o", "empty.ptx"), folder)
        return (folder / "empty.ptx").read_text(encoding="ascii", errors="replace")


def _find_host_compiler() -> Path:
    try:
        return find_cxx()
    except ToolchainMissingError as error:
        raise ToolchainMissingError("a C++ compiler, which nvcc needs,", error.looked, error.remedy) from None


def _find_nvcc(host_compiler: Path) -> Path:
    """Find the real nvcc: follow links, and ask wrapper scripts what they start."""
    in_toolkits = [root / "bin/nvcc" for root in toolkit_roots()]
    in_toolkit = next(filter(None, map(executable, in_toolkits)), None)
    found = in_toolkit or on_path("nvcc") or on_sys_path(_IN_WHEEL)
    if found is None:
        named = [str(path) for path in in_toolkits] or ["CUDA_PATH and CUDA_HOME, not set"]
        raise ToolchainMissingError("nvcc", [*named, "PATH", f"{_IN_WHEEL} on sys.path"], _REMEDY)
    real = Path(os.path.realpath(found))
    if is_elf(real) and os.path.isfile(real.with_name("nvcc.profile")):
        return real
    return _behind_wrapper(found, host_compiler)


def _behind_wrapper(wrapper: Path, host_compiler: Path) -> Path:
    what = f"the nvcc behind the wrapper {wrapper}"
    try:
        log = ask((str(wrapper), "--dryrun", "-ccbin", str(host_compiler), "-E", "-x", "cu", os.devnull))
        folder = _only_match(r"^#\$ _HERE_=(.+)$", log)
    except RuntimeError as error:
        raise ToolchainMissingError(what, [str(error)], _REMEDY) from error
    real = Path(os.path.realpath(Path(folder, "nvcc")))
    if not os.path.isfile(real):
        raise ToolchainMissingError(what, [str(real)], _REMEDY)
    return real


def _part(nvcc: Path, *candidates: str) -> Path:
    """Find a program that nvcc starts, relative to nvcc's folder."""
    paths = [nvcc.parent / candidate for candidate in candidates]
    found = next(filter(None, map(executable, paths)), None)
    if found is None:
        raise ToolchainMissingError(f"{paths[-1].name}, a part of nvcc,", list(map(str, paths)), _REMEDY)
    return found


def _only_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"nvcc: no line like {pattern!r} in: {text[:500]!r}")
    return found[1]
