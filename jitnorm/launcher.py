"""The C++ launcher: built once by the cache with the host's compiler, then loaded through TVM-FFI."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jitnorm.cache import Artifact, Cache, Store, make_key
from jitnorm.cache.events import emit
from jitnorm.cache.printable import printable
from jitnorm.errors import KernelNotWarmError
from jitnorm.ffi import tvm_ffi
from jitnorm.forks import no_fork
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI
from jitnorm.kernels.launcher_source import launcher_source
from jitnorm.misses import jit_mode
from jitnorm.requirements import is_usable, requirements
from jitnorm.store import as_cache, memo_folder, user_cache, workplaces
from jitnorm.tvm_headers import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jitnorm.toolchains.cxx import Cxx
    from jitnorm.toolchains.zig import Zig

_LOG = logging.getLogger("jitnorm.cache")
# Small, because its digest is computed at each load.
_FLAGS = ("-std=c++17", "-O2", "-fvisibility=hidden", "-ffunction-sections")
_LINK_FLAGS = ("-Wl,--gc-sections", "-s")
_DESCRIPTORS = "/proc/self/fd"
_NO_PROC = "/proc is not mounted, but code in memory is loaded through it"
_FUNCTIONS = (
    "load_kernel",
    "make_checker",
    "make_dispatcher",
    "make_known",
    "bind",
    "allocate",
    "stand_in",
    "stand_in_view",
    "at_address",
    "merge_last_two",
    "reinterpret",
    "permute",
    "device_count",
    "device_name",
    "device_capability",
    "driver_version",
)


class Launcher:
    """The launcher's functions, as `tvm_ffi.Function`s; kernels/launcher/launcher.cc declares them."""

    load_kernel: Callable[[str, bytes], Any]
    make_checker: Callable[[str], Any]
    make_dispatcher: Callable[[str], Any]
    make_known: Callable[[int, list[int], list[int], int], int]
    bind: Callable[[Any, Any, Any], Any]
    allocate: Callable[[Any, str, int], Any]
    stand_in: Callable[[Any, str, int, int], Any]
    stand_in_view: Callable[[Any, Any, str, int, int, int], Any]
    at_address: Callable[[Any, str, int, int, Any], Any]
    merge_last_two: Callable[[Any], Any]
    reinterpret: Callable[[Any, str], Any]
    permute: Callable[[Any, Any, Any], Any]
    device_count: Callable[[], int]
    device_name: Callable[[int], str]
    device_capability: Callable[[int], Any]
    driver_version: Callable[[], int]

    def __init__(self, library: bytes) -> None:
        import ctypes

        # Loaded from memory, so that exactly the bytes that the cache verified run. The descriptor stays open: the
        # loader identifies libraries by name, and no other library may reuse this one.
        if not os.path.exists(_DESCRIPTORS):
            raise RuntimeError(f"cannot load the launcher: {_NO_PROC}")
        file = os.memfd_create("jitnorm-launcher")
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(library)
        loaded = ctypes.CDLL(f"{_DESCRIPTORS}/{file}")
        for name in _FUNCTIONS:
            address = ctypes.cast(getattr(loaded, f"__tvm_ffi_{name}"), ctypes.c_void_p).value
            function = tvm_ffi().Function.__from_extern_c__(address, keep_alive_object=loaded)
            setattr(self, name, function)


@lru_cache(maxsize=1)
def launcher() -> Launcher:
    """The launcher of this process."""
    return load_launcher(user_cache())


def object_at(address: int) -> Any:
    """The object of Python at an address, such as a function that the launcher made."""
    import ctypes

    return ctypes.cast(address, ctypes.py_object).value


def load_launcher(cache: Cache | Store) -> Launcher:
    """Load the launcher from a cache, or build it if missing; see `load_or_build_launcher`."""
    loaded: list[Launcher] = []

    def loads(artifact: Artifact) -> bool:
        # One built elsewhere may not load: only the dynamic linker knows all its dependencies.
        try:
            loaded.append(Launcher(artifact.payload))
        except (OSError, AttributeError) as error:
            builder = printable(artifact.manifest.get("toolchain"))
            _LOG.warning("ignoring a launcher built by %s: %s", builder, error)
            return False
        return True

    artifact = load_or_build_launcher(cache, loads)
    return loaded[-1] if loaded else Launcher(artifact.payload)


def load_or_build_launcher(cache: Cache | Store, loads: Callable[[Artifact], bool] | None = None) -> Artifact:
    """Load the launcher's artifact from a cache, or build it into the cache.

    Any artifact of the same source serves, whichever compiler built it: identifying the compiler alone took 2 ms of a
    first call.

    Args:
        cache: the cache to look it up and store it in.
        loads: whether a found artifact can be loaded; None checks only the requirements in its manifest.

    Raises:
        ToolchainMissingError: it is not cached and neither a C++ compiler nor zig is installed.
        KernelNotWarmError: it is not cached and JITNORM_JIT is ``deny``.
        CompileError: the compiler failed.
    """
    cache, began = as_cache(cache), perf_counter()
    parts = LauncherParts.collect()
    source_key = parts.source_key(os.uname().machine)

    def serves(artifact: Artifact) -> bool:
        return is_usable(artifact) and (loads is None or loads(artifact))

    found = cache.load_source(source_key, serves)
    if found is not None:
        return found
    if jit_mode() == "deny":
        emit("miss", key=source_key, seconds=perf_counter() - began)
        raise KernelNotWarmError("the launcher", os.uname().machine, "jitnorm warm, with any kernel")
    with no_fork():
        from jitnorm.toolchains import host_compiler

    compiler = host_compiler(memo_folder(cache.store), workplaces(cache.store))
    return cache.load_or_build(parts.key(compiler), lambda: parts.build(compiler), accept=is_usable)


@dataclass(frozen=True)
class LauncherParts:
    """The inputs of a launcher build.

    Attributes:
        source: the source text.
        include: folder of TVM-FFI's headers.
        headers: digest of the headers.
    """

    source: str
    include: Path
    headers: str

    @classmethod
    def collect(cls, include: Path | None = None) -> LauncherParts:
        """Collect the parts, by default with the headers of the installed TVM-FFI."""
        folder = include or Path(tvm_ffi().__file__ or "").parent / "include"
        return cls(launcher_source(), folder, digest_of(folder))

    def source_key(self, machine: str) -> str:
        """The source key of launchers for a machine, whichever compiler built them."""
        return make_key({**self._fields(), "launcher_abi": str(LAUNCHER_ABI), "machine": machine})

    def key(self, compiler: Cxx | Zig) -> str:
        """The key of the launcher that a compiler builds from them."""
        flags = "\0".join((*_FLAGS, *_LINK_FLAGS))
        return make_key({**self._fields(), "toolchain": compiler.identity(), "flags": flags})

    def build(self, compiler: Cxx | Zig) -> Artifact:
        """Compile the launcher, regardless of the cache."""
        payload = compiler.build_shared(self.source, (*_FLAGS, *_LINK_FLAGS, f"-I{self.include}"))
        manifest: dict[str, Any] = {
            "kind": "launcher",
            "toolchain": compiler.identity(),
            "flags": [*_FLAGS, *_LINK_FLAGS],
            "source_key": self.source_key(compiler.machine),
            "requires": requirements(payload, _FLAGS, compiler.machine),
            # No kernel can be loaded without it, so it is evicted last.
            "evict_last": True,
        }
        return Artifact(payload, manifest)

    def _fields(self) -> dict[str, str]:
        return {"kind": "launcher", "source": self.source, "headers": self.headers}
