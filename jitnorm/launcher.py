"""The C++ launcher: built once by the cache with the host's compiler, then loaded through TVM-FFI."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitnorm.cache import Artifact, Store, load_or_build, make_key
from jitnorm.ffi import tvm_ffi
from jitnorm.kernels.launcher_source import launcher_source
from jitnorm.store import memo_folder, user_store

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS = ("-std=c++17", "-O2", "-fvisibility=hidden")
_FUNCTIONS = (
    "load_kernel",
    "make_checker",
    "make_dispatcher",
    "allocate",
    "merge_last_two",
    "reinterpret",
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
    allocate: Callable[[Any, str, int], Any]
    merge_last_two: Callable[[Any], Any]
    reinterpret: Callable[[Any, str], Any]
    device_count: Callable[[], int]
    device_name: Callable[[int], str]
    device_capability: Callable[[int], Any]
    driver_version: Callable[[], int]

    def __init__(self, library: bytes) -> None:
        import ctypes

        # Loaded from memory, exactly the bytes that the cache verified are what runs. The descriptor stays open:
        # the loader knows libraries by name, and no other may get this one's.
        file = os.memfd_create("jitnorm-launcher")
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(library)
        loaded = ctypes.CDLL(f"/proc/self/fd/{file}")
        for name in _FUNCTIONS:
            address = ctypes.cast(getattr(loaded, f"__tvm_ffi_{name}"), ctypes.c_void_p).value
            function = tvm_ffi().Function.__from_extern_c__(address, keep_alive_object=loaded)
            setattr(self, name, function)


@lru_cache(maxsize=1)
def launcher() -> Launcher:
    """The launcher of this process."""
    return Launcher(load_or_build_launcher(user_store()).payload)


def load_or_build_launcher(store: Store) -> Artifact:
    """The launcher's artifact, from the store or built into it."""
    from jitnorm.toolchains.cxx import Cxx

    source = launcher_source()
    include = _include_folder()
    compiler = Cxx(memo_dir=memo_folder(store))
    fields = {
        "kind": "launcher",
        "source": source,
        "toolchain": compiler.identity(),
        "flags": "\0".join(_FLAGS),
        "headers": _headers_identity(include, memo_folder(store)),
    }

    def build() -> Artifact:
        payload = compiler.build_shared(source, (*_FLAGS, f"-I{include}"))
        return Artifact(payload, {"kind": "launcher", "toolchain": fields["toolchain"], "flags": list(_FLAGS)})

    return load_or_build(store, make_key(fields), build)


def _include_folder() -> Path:
    return Path(tvm_ffi().__file__ or "").parent / "include"


def _headers_identity(include: Path, memo_dir: Path | None) -> str:
    """The digest of TVM-FFI's headers; reading them all takes milliseconds, so it is remembered by their library."""
    from jitnorm.toolchains.identity import memoised

    library = include.parent / "lib" / "libtvm_ffi.so"
    return memoised((library,), lambda: _digest(include), memo_dir) if library.exists() else _digest(include)


def _digest(folder: Path) -> str:
    """SHA-256 over the names and contents of all headers below `folder`."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.h")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{len(text)}\0".encode())
        digest.update(text)
    return digest.hexdigest()
