"""SGLang's plugin framework replaces sgl_kernel's functions by jitnorm's; scripts/sglang_plugin runs everything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.integrations import sglang as plugin


def test_unknown_functions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "rmsnorm,rms_norm")
    with pytest.raises(ValueError, match=f"{plugin.VARIABLE}: has 'rms_norm'; allowed are all, or names among rmsnorm"):
        plugin.register()


def test_no_function_is_hooked_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "sgl_kernel", None)
    plugin.register()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, ModuleType]]:
    """SGLang's framework before it loads plugins, and a module that has imported from a stand-in for `sgl_kernel`."""
    plugins = pytest.importorskip("sglang.srt.plugins", reason="scripts/sglang_plugin FOLDER runs SGLang's wheel")
    kernels, layer = ModuleType("sgl_kernel"), ModuleType("layer_of_sglang")
    for name in ("rmsnorm", "fused_add_rmsnorm", "silu_and_mul"):
        kernels.__dict__[name] = layer.__dict__[name] = not_called(name)
    monkeypatch.setitem(sys.modules, "sgl_kernel", kernels)
    monkeypatch.setitem(sys.modules, "layer_of_sglang", layer)
    monkeypatch.setattr(plugins, "_plugins_loaded", False)
    yield plugins, layer
    plugins.HookRegistry.reset()


def not_called(name: str) -> Callable[..., None]:
    def kernel(*args: Any, **options: Any) -> None:
        raise AssertionError(f"sgl_kernel's {name} was called")

    return kernel


def test_sglang_calls_jitnorm(engine: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plugins, layer = engine
    (found,) = entry_points(group=plugins.GENERAL_PLUGINS_GROUP, name="jitnorm")
    assert found.load() is plugin.register
    monkeypatch.setenv(plugin.VARIABLE, "rmsnorm,fused_add_rmsnorm,gemma_rmsnorm")
    plugins.load_plugins()
    x, residual, weight = torch.randn(3, 64).bfloat16(), torch.randn(3, 64).bfloat16(), torch.randn(64).bfloat16()
    assert torch.equal(layer.rmsnorm(x, weight, 1e-5), jitnorm.rmsnorm(x, weight, 1e-5))
    y, total = jitnorm.add_rmsnorm(x, residual, weight, 1e-5)
    layer.fused_add_rmsnorm(x, residual, weight, 1e-5)
    assert torch.equal(x, y)
    assert torch.equal(residual, total)
    assert not hasattr(sys.modules["sgl_kernel"], "gemma_rmsnorm")
    with pytest.raises(AssertionError, match="sgl_kernel's silu_and_mul was called"):
        layer.silu_and_mul(x)


def test_sglang_runs_as_it_was_without_the_variable(engine: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plugins, layer = engine
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    plugins.load_plugins()
    with pytest.raises(AssertionError, match="sgl_kernel's rmsnorm was called"):
        layer.rmsnorm(torch.ones(1, 64), torch.ones(64))
