"""NVIDIA's CuTe-DSL: kernels traced from Python, to cubin inside this process, with no driver or GPU."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jitnorm.forks import no_fork
from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import CompileError, ToolchainMissingError
from jitnorm.toolchains.identity import MemoFolder, memoised
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace, WorkplaceError, work_in

if TYPE_CHECKING:
    from jitnorm.kernels.target import Target

_DISTRIBUTION = "nvidia_cutlass_dsl"
_OLDEST, _NEXT_MAJOR = (4, 8), (5,)
_REMEDY = 'pip install "jitnorm[cute]"'
# Variables of the DSL that change no byte of a cubin.
_HARMLESS = re.compile(
    r"CUTE_DSL_(CACHE_DIR|DUMP_DIR|KEEP|KEEP_\w+|LOG_\w+|PRINT_\w+|SHOW_STACKTRACE|FILTER_STACKTRACE|ARCH|NO_CACHE"
    r"|DISABLE_FILE_CACHING|JIT_TIME_PROFILING|JIT_CACHE_MAX_ELEMS)"
)
_CACHE_FOLDERS = ("CUTE_DSL_CACHE_DIR", "CUTE_EXPERIMENTAL_DSL_CACHE_DIR")
_build_lock = threading.Lock()  # the DSL traces one kernel at a time


def _after_fork() -> None:
    global _build_lock
    _build_lock = threading.Lock()  # the one that came along may be held by a thread that did not


os.register_at_fork(after_in_child=_after_fork)


class Cute(Toolchain):
    """The package nvidia-cutlass-dsl: see `Toolchain`. Its sources are those of `jitnorm.kernels.cute.source`.

    A compilation cannot be interrupted: it runs on the calling thread, without a time limit.
    """

    name = "cute"

    def __init__(
        self, memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
    ) -> None:
        super().__init__(memo_dir, workplaces)
        self._metadata = _find()

    @property
    def location(self) -> Path:
        """The folder of the package's metadata."""
        return self._metadata[0]

    def identity(self) -> str:
        """See `Toolchain.identity`."""
        return memoised([folder / "RECORD" for folder in self._metadata], self._probe, self._memo_dir)

    def flags(self, target: Target) -> tuple[str, ...]:
        """`Toolchain.flags`, with the variables that the DSL reads as options."""
        variables = (
            f"{name}={value}"
            for name, value in sorted(os.environ.items())
            if name.startswith("CUTE_DSL_") and not _HARMLESS.fullmatch(name)
        )
        return (f"--gpu-arch={target}", *variables)

    def compile(self, source: str, target: Target) -> bytes:
        """See `Toolchain.compile`."""
        from jitnorm.kernels.cute.source import cute_source, parse_heading

        if target.is_cpu:
            raise ValueError("target: cute builds for CUDA targets, not for cpu")
        config, of = parse_heading(source)
        if of != target or source != cute_source(config, target).text:
            raise ValueError("source: is not that of this version of jitnorm and this target; generate it anew")

        def compile_in(folder: Path) -> bytes:
            with _undisturbed(str(folder)):
                try:
                    with no_fork():  # a forked child would wait for a half imported module for ever
                        from jitnorm.kernels.cute.build import build
                except ImportError as error:
                    looked = [f"{self.location}, which cannot be imported: {error}"]
                    raise ToolchainMissingError("CuTe-DSL", looked, _REMEDY) from error
                try:
                    return build(config, target, folder)
                except Exception as error:  # the DSL's errors have no base class of their own
                    reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                    raise CompileError(self.name, str(target), reason, str(error), source) from error

        try:
            with _build_lock:
                return work_in(self._workplaces, compile_in)
        except WorkplaceError as error:
            raise CompileError(self.name, str(target), str(error), "", source) from None

    def _probe(self) -> str:
        import hashlib

        versions = ", ".join(_name_and_version(folder) for folder in self._metadata)
        files = sorted(line for folder in self._metadata for line in _installed_files(folder))
        return f"CuTe-DSL, {versions}, files {hashlib.sha256(chr(10).join(files).encode()).hexdigest()[:32]}"


def _find() -> tuple[Path, ...]:
    """The metadata of the package, then that of its libraries, in the first folder of sys.path that has it."""
    for entry in sys.path:
        found = _metadata_in(entry or ".")
        if found and _version_of(found[0].name)[0] == _DISTRIBUTION:
            _require_supported(found[0])
            return found
    raise ToolchainMissingError("CuTe-DSL", [f"{_DISTRIBUTION}-*.dist-info on sys.path"], _REMEDY)


def _metadata_in(folder: str) -> tuple[Path, ...]:
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    found = [name for name in names if name.startswith(_DISTRIBUTION) and name.endswith(".dist-info")]
    return tuple(Path(folder, name).absolute() for name in sorted(found, key=_version_of))


def _version_of(name: str) -> tuple[str, str]:
    """Distribution and version of a folder ``distribution-version.dist-info``."""
    distribution, _, version = name.removesuffix(".dist-info").partition("-")
    return distribution, version


def _name_and_version(folder: Path) -> str:
    return " ".join(_version_of(folder.name))


def _require_supported(folder: Path) -> None:
    version = _version_of(folder.name)[1]
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not _OLDEST <= numbers < _NEXT_MAJOR:
        raise ToolchainMissingError("CuTe-DSL 4.8 or a later 4.x", [f"version {version} in {folder.parent}"], _REMEDY)


def _installed_files(folder: Path) -> list[str]:
    """Name and digest of each module and library of a distribution; what an installer adds has no digest."""
    lines = (folder / "RECORD").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if re.search(r"\.(py|so[.\d]*),sha256=", line)]


@contextmanager
def _undisturbed(folder: str) -> Iterator[None]:
    """Keeps the DSL from changing the process: importing it makes a cache folder and replaces `sys.excepthook`."""
    before, hook = {name: os.environ.get(name) for name in _CACHE_FOLDERS}, sys.excepthook
    is_loaded = "cutlass" in sys.modules
    if not is_loaded:
        os.environ.update(dict.fromkeys(_CACHE_FOLDERS, folder))
    try:
        yield
    finally:
        sys.excepthook = hook
        if not is_loaded:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
