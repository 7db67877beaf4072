"""A compiler that waits or fails when a test wants it to."""

from __future__ import annotations

import threading

import pytest
from jitnorm.kernels.target import Target

from jitnorm.toolchains import Toolchain

BOUND = 60.0


class Compiler:
    """A real one, which stops at sources of some hidden sizes until it is let go on, or fails."""

    def __init__(self, toolchain: type[Toolchain], monkeypatch: pytest.MonkeyPatch) -> None:
        self.stops_at: set[str] = set()
        self.fails_at: set[str] = set()
        self.go_on = threading.Event()
        self.compiled: list[str] = []
        compile_source = toolchain.compile

        def compile_when_told(self_: Toolchain, source: str, target: Target) -> bytes:
            self._meet(source.partition("hidden_size=")[2].partition(",")[0])
            return compile_source(self_, source, target)

        monkeypatch.setattr(toolchain, "compile", compile_when_told)

    def _meet(self, size: str) -> None:
        self.compiled.append(size)
        if size in self.stops_at:
            assert self.go_on.wait(BOUND)
        if size in self.fails_at:
            raise RuntimeError(f"no kernel of {size} today")
