"""From a configuration to what its kernel is made of: source, launch recipe and the keys that name both."""

from __future__ import annotations

import hashlib
import json

from jitnorm.cache import make_key
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source, generate
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI, launch_recipe
from jitnorm.kernels.target import Target
from jitnorm.toolchains import Toolchain


def source_for(config: KernelConfig, target: Target, backend: str) -> Source:
    """The source that a backend builds a kernel from; ValueError if there is none."""
    if backend == "cute":
        from jitnorm.kernels.cute.source import cute_source

        return cute_source(config, target)
    return generate(config, target)


def why_not_cute(config: KernelConfig) -> str:
    """Why CuTe-DSL lacks a kernel, in words; empty if it does not."""
    from jitnorm.kernels.cute.offer import why_not

    return why_not(config)


def recipe_text(config: KernelConfig, target: Target, language: str = "c++") -> str:
    """The launch recipe as the launcher reads it and as manifests store it, by the language of the source."""
    if language == "cute":
        from jitnorm.kernels.cute.recipe import cute_recipe as make_recipe
    else:
        make_recipe = launch_recipe
    return json.dumps(make_recipe(config, target), separators=(",", ":"))


def kernel_key(source: Source, toolchain: Toolchain) -> str:
    """The key of a kernel: a digest of everything that its artifact is made of."""
    return make_key(
        {
            **_source_fields(source),
            "toolchain": toolchain.identity(),
            "flags": "\0".join(toolchain.flags(source.target)),
        }
    )


def kernel_source_key(source: Source) -> str:
    """The source key of a kernel, shared by its artifacts from all compilers."""
    return make_key(_source_fields(source))


def source_digest(source: Source) -> str:
    """The SHA-256 of a source, which tells whether another version of jitnorm generated the source of an artifact."""
    return hashlib.sha256(source.text.encode("utf-8")).hexdigest()


def _source_fields(source: Source) -> dict[str, str]:
    return {
        "kind": "kernel",
        "source": source.text,
        "recipe": recipe_text(source.config, source.target, source.language),
        "target": str(source.target),
        "launcher_abi": str(LAUNCHER_ABI),
    }
