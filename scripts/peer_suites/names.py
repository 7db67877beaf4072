"""The modules that a peer's tests import, made of `jitnorm.compat`."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import flashinfer_names
import sglang_names
import vllm_names
from not_here import not_here


@dataclass(frozen=True)
class Peer:
    """A peer.

    Attributes:
        packages: that its tests import.
        files: its tests of this field.
        names: what a module of it has, by its full name.
        prepare: what else its tests need.
        plugins: of pytest.
    """

    packages: tuple[str, ...]
    files: tuple[str, ...]
    names: Callable[[str], dict[str, Any]]
    prepare: Callable[[], object] = lambda: None
    plugins: tuple[Any, ...] = ()


PEERS = {
    "flashinfer": Peer(("flashinfer",), flashinfer_names.FILES, flashinfer_names.names),
    "sglang": Peer(("sgl_kernel", "sglang", "vllm", "flashinfer"), sglang_names.FILES, sglang_names.names),
    "vllm": Peer(("vllm",), vllm_names.FILES, vllm_names.names, vllm_names.prepare, (vllm_names,)),
}


class _Module(ModuleType):
    """A module whose other names raise NotHereError when they are called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return not_here(f"{self.__name__}.{name}")


@dataclass
class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the packages."""

    peer: Peer

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self.peer.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self.peer.names(module.__name__))


def install(peer: Peer) -> None:
    """Have imports of the peer lead here."""
    sys.meta_path.insert(0, _Finder(peer))
    peer.prepare()
