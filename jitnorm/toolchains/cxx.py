"""The host's C++ compiler: CPU kernels, and the launcher that binds kernels to TVM-FFI."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from jitnorm.kernels.target import Target
from jitnorm.toolchains.base import Toolchain
from jitnorm.toolchains.errors import ToolchainMissingError
from jitnorm.toolchains.identity import MemoFolder, memoised
from jitnorm.toolchains.process import ask, compile_file
from jitnorm.toolchains.search import is_elf, on_path
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES, Workplace

_REMEDY = "install g++ or clang++, e.g. apt-get install g++, or set CXX to one"
_SOURCE_NAME = "kernel.cpp"
_CPU = Target("cpu")
# -O3 costs 10 ms of 120 over -O2 on a row loop and makes it 15 to 30 % faster. The floating-point flags keep every
# operation as written, without the side effects errno and exception flags: if nothing can trap, GCC computes both sides
# of a selection and can vectorize it (FP8: 40 ms to 19).
OPTIONS = (
    *("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    "-frandom-seed=jitnorm",
)
# The psABI's x86-64 levels that kernels are built for, highest first. 512-bit vectors take a plain norm from 8.4 ms to
# 6.6 and NVFP4 from 13.2 to 7.6.
LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "x86-64-v3": ("-march=x86-64-v3",),
}
_CPUINFO = "/proc/cpuinfo"
# The features of each level, as named there.
_V3_FEATURES = {
    *("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),
    *("ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm"),
}
_FEATURES = {
    "x86-64-v4": _V3_FEATURES | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": _V3_FEATURES,
}
_FIRST_MAJOR_WITH_LEVELS = {"g++": 11, "clang": 12}


class Cxx(Toolchain):
    """The C++ compiler named by CXX, else g++, else clang++: see `Toolchain`."""

    name = "cxx"

    def __init__(
        self, memo_dir: MemoFolder | None = None, workplaces: Sequence[Workplace] = DEFAULT_WORKPLACES
    ) -> None:
        super().__init__(memo_dir, workplaces)
        self._compiler = find_cxx()

    @property
    def location(self) -> Path:
        """The compiler as it is invoked: links are not followed, because ccache and the like go by name."""
        return self._compiler

    def identity(self) -> str:
        """See `Toolchain.identity`."""
        # Behind a script or ccache, the compiler can change while the file stays the same: ask in every process.
        memo_dir = self._memo_dir if _is_compiler(self._compiler) else None
        return memoised([self._compiler], self._probe, memo_dir)

    def flags(self, target: Target = _CPU) -> tuple[str, ...]:
        """`Toolchain.flags`, with an instruction set level, never this exact processor: artifacts are shared."""
        levels = filter(processor_has, LEVELS) if _compiler_knows_levels(self.identity()) else iter(())
        return (*OPTIONS, *LEVELS.get(next(levels, ""), ()))

    def compile(self, source: str, target: Target = _CPU) -> bytes:
        """See `Toolchain.compile`."""
        if not target.is_cpu:
            raise ValueError(f"target: cxx builds for cpu, not for {target}")
        return self.build_shared(source, self.flags(target))

    def build_shared(self, source: str, flags: Sequence[str]) -> bytes:
        """Build a shared library with only the given flags (and -shared -fPIC).

        Args:
            source: C++ text.
            flags: options, include folders, libraries; they follow the source on the command line.

        Raises:
            CompileError: as for ``compile``.
        """
        output_name = "kernel.so"
        return compile_file(
            (str(self._compiler), "-shared", "-fPIC", _SOURCE_NAME, *flags, "-o", output_name),
            source=source,
            source_name=_SOURCE_NAME,
            output_name=output_name,
            toolchain=self.name,
            target=_CPU,
            workplaces=self._workplaces,
        )

    def _probe(self) -> str:
        # Ask once: each start of a compiler behind a script costs a process's first call more than 2 ms.
        try:
            answer = ask((str(self._compiler), "-v"))
        except RuntimeError as error:
            raise RuntimeError(f"{error}; {_REMEDY}") from None
        version = re.search(r"^.*\b(gcc|clang) version \d.*$", answer, re.MULTILINE)
        machine = re.search(r"^Target: (\S+)$", answer, re.MULTILINE)
        if version is None or machine is None:
            raise RuntimeError(f"{self._compiler} -v: no version or target in its output: {answer[:500]!r}; {_REMEDY}")
        return f"{version[0].strip()}, {machine[1]}"


def find_cxx() -> Path:
    """Find the host's C++ compiler.

    Raises:
        ToolchainMissingError: none is installed, or CXX does not name one program.
    """
    wanted = os.environ.get("CXX")
    programs = (wanted,) if wanted else ("g++", "clang++")
    found = next(filter(None, map(on_path, programs)), None)
    if found is None:
        by_name = f"CXX={wanted!r}, which must be one program without arguments"
        raise ToolchainMissingError("a C++ compiler", [by_name if wanted else "g++, clang++ on PATH"], _REMEDY)
    return found


def _is_compiler(path: Path) -> bool:
    real = Path(os.path.realpath(path))
    return re.search(r"g\+\+|clang", real.name) is not None and is_elf(real)


def _compiler_knows_levels(identity: str) -> bool:
    version, _, machine = identity.rpartition(", ")
    major = re.search(r"\s(\d+)\.\d", re.sub(r"\([^)]*\)", "", version))
    compiler = "clang" if "clang" in version else "g++"
    if major is None or not machine.startswith("x86_64"):
        return False
    return int(major[1]) >= _FIRST_MAJOR_WITH_LEVELS[compiler]


def processor_has(level: str) -> bool:
    """Whether this processor supports one of `LEVELS`."""
    return _processor_features() >= _FEATURES[level]


@lru_cache(maxsize=1)
def _processor_features() -> frozenset[str]:
    try:
        with open(_CPUINFO, encoding="ascii", errors="replace") as file:
            return frozenset(next((line for line in file if line.startswith("flags")), "").split())
    except OSError as error:
        import logging

        text = "cannot read the processor's features, so CPU kernels are built for any processor and run slower: %s"
        logging.getLogger("jitnorm").warning(text, error)
        return frozenset()
