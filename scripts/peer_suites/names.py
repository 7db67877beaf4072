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


class NotHereError(NotImplementedError):
    """A function of the peer that jitnorm does not have."""


@dataclass(frozen=True)
class Peer:
    """A peer.

    Attributes:
        package: its name.
        files: its tests of this field.
        names: what a module of it has, by its full name.
    """

    package: str
    files: tuple[str, ...]
    names: Callable[[str], dict[str, Any]]


PEERS = {"flashinfer": Peer("flashinfer", flashinfer_names.FILES, flashinfer_names.names)}


class _NotHere:
    """A name that a module does not have: a class, so that it can stand in annotations, too."""

    def __new__(cls, *args: Any, **keywords: Any) -> Any:
        raise NotHereError(cls.__qualname__)


class _Module(ModuleType):
    """A module whose other names raise NotHereError when they are called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_NotHere,), {"__qualname__": f"{self.__name__}.{name}"})


@dataclass
class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the peer's package."""

    peer: Peer

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != self.peer.package:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self.peer.names(module.__name__))


def install(peer: Peer) -> None:
    """Have imports of the peer lead here."""
    sys.meta_path.insert(0, _Finder(peer))
