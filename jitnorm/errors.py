"""Errors of the JIT manager; those of the cache and of the toolchains live with them."""

from __future__ import annotations


class KernelNotReadyError(RuntimeError):
    """A kernel is not loaded yet, and loading it now would break the CUDA graph being captured."""
