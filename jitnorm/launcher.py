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
# Its digest is computed at each load, so it is made small.
_FLAGS = ("-std=c++17", "-O2", "-fvisibility=hidden", "-ffunction-sections")
_LINK_FLAGS = ("-Wl,--gc-sections", "-s")
_DESCRIPTORS = "/proc/self/fd"
_NO_PROC = "/proc is not mounted, and code in memory is loaded through it"
_FUNCTIONS = (
    "load_kernel",
    "make_checker",
    "make_dispatcher",
    "bind",
    "allocate",
    "stand_in",
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
    bind: Callable[[Any, Any, Any], Any]
    allocate: Callable[[Any, str, int], Any]
    stand_in: Callable[[Any, str, int, int], Any]
    merge_last_two: Callable[[Any], Any]
    reinterpret: Callable[[Any, str], Any]
    permute: Callable[[Any, Any, Any], Any]
    device_count: Callable[[], int]
    device_name: Callable[[int], str]
    device_capability: Callable[[int], Any]
    driver_version: Callable[[], int]

    def __init__(self, library: bytes) -> None:
        import ctypes

        # Loaded from memory, exactly the bytes that the cache verified are what runs. The descriptor stays open:
        # the loader knows libraries by name, and no other may get this one's.
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


def load_launcher(cache: Cache | Store) -> Launcher:
    """The launcher out of a cache, built if need be; see `load_or_build_launcher`."""
    loaded: list[Launcher] = []

    def loads(artifact: Artifact) -> bool:
        # One that was built elsewhere may not: only the dynamic linker knows all that it needs.
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
    """The launcher's artifact, from the cache or built into it.

    One of the same source serves, whatever compiler built it: asking for the compiler alone took 2 ms of a first call.

    Args:
        cache: where to look and to publish.
        loads: whether an artifact that was found can be loaded; None asks only for what its manifest requires.

    Raises:
        ToolchainMissingError: it is not cached and no C++ compiler is installed.
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
    from jitnorm.toolchains.cxx import Cxx

    compiler = Cxx(memo_folder(cache.store), workplaces(cache.store))
    return cache.load_or_build(parts.key(compiler), lambda: parts.build(compiler), accept=is_usable)


@dataclass(frozen=True)
class LauncherParts:
    """What a launcher is made of.

    Attributes:
        source: its text.
        include: folder of TVM-FFI's headers.
        headers: their digest.
    """

    source: str
    include: Path
    headers: str

    @classmethod
    def collect(cls, include: Path | None = None) -> LauncherParts:
        """The parts; of the TVM-FFI that is installed, unless its headers lie elsewhere."""
        folder = include or Path(tvm_ffi().__file__ or "").parent / "include"
        return cls(launcher_source(), folder, digest_of(folder))

    def source_key(self, machine: str) -> str:
        """What launchers for a machine have in common, whatever compiled them."""
        return make_key({**self._fields(), "launcher_abi": str(LAUNCHER_ABI), "machine": machine})

    def key(self, compiler: Cxx | Zig) -> str:
        """The key of the launcher that a compiler makes of them."""
        flags = "\0".join((*_FLAGS, *_LINK_FLAGS))
        return make_key({**self._fields(), "toolchain": compiler.identity(), "flags": flags})

    def build(self, compiler: Cxx | Zig) -> Artifact:
        """Compile the launcher, whatever the cache holds."""
        payload = compiler.build_shared(self.source, (*_FLAGS, *_LINK_FLAGS, f"-I{self.include}"))
        manifest: dict[str, Any] = {
            "kind": "launcher",
            "toolchain": compiler.identity(),
            "flags": [*_FLAGS, *_LINK_FLAGS],
            "source_key": self.source_key(compiler.machine),
            "requires": requirements(payload, _FLAGS, compiler.machine),
            # Without it no kernel can be loaded, so it outlives them.
            "evict_last": True,
        }
        return Artifact(payload, manifest)

    def _fields(self) -> dict[str, str]:
        return {"kind": "launcher", "source": self.source, "headers": self.headers}
