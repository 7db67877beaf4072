"""As a provider of vLLM's IR, jitnorm follows the IR's definitions; scripts/vllm_plugin runs this without vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import jitnorm
from jitnorm.integrations import vllm as plugin

ir = pytest.importorskip("vllm.ir", reason="the IR is vLLM's: scripts/vllm_plugin FOLDER runs its source distribution")
ops = pytest.importorskip("vllm.ir.ops")

SIZE, EPS = 64, 1e-5
ROUNDINGS = {torch.bfloat16: ("hf", "vllm"), torch.float32: ("once", "once"), None: ("once", "once")}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    torch.manual_seed(0)
    plugin.register()
    plugin.register()
    with torch.no_grad():
        yield


def rows(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, SIZE).to(dtype)


def weight_of(dtype: torch.dtype | None) -> torch.Tensor | None:
    return None if dtype is None else torch.randn(SIZE).to(dtype)


def implementation(op: Any) -> Any:
    return op.impls["jitnorm"]


def test_vllm_finds_the_plugin() -> None:
    (found,) = entry_points(group="vllm.general_plugins", name="jitnorm")
    assert found.load() is plugin.register
    assert "jitnorm" in ops.rms_norm.supported_providers()
    assert "jitnorm" in ops.fused_add_rms_norm.supported_providers()


@pytest.mark.parametrize("dtype", ROUNDINGS)
def test_norms_have_the_bits_of_the_definition(dtype: torch.dtype | None) -> None:
    weight, x, residual = weight_of(dtype), rows(2, 5), rows(2, 5)
    with ops.rms_norm.set_priority(["jitnorm", "native"]):
        y = ops.rms_norm(x, weight, EPS)
    assert torch.equal(y, jitnorm.rmsnorm(x, weight, EPS, rounding=ROUNDINGS[dtype][0]))
    assert torch.equal(y, ops.rms_norm.impls["native"].impl_fn(x, weight, EPS))
    kept = x.clone(), residual.clone()
    with ops.fused_add_rms_norm.set_priority(["jitnorm", "native"]):
        made = ops.fused_add_rms_norm(x, residual, weight, EPS)
        assert torch.equal(x, kept[0])
        assert torch.equal(residual, kept[1])
        in_place = ops.fused_add_rms_norm.maybe_inplace(*kept, weight, EPS)
    defined = ops.fused_add_rms_norm.impls["native"].impl_fn(x, residual, weight, EPS)
    assert all(map(torch.equal, made, defined))
    assert all(map(torch.equal, in_place, defined))
    assert [each.data_ptr() for each in in_place] == [each.data_ptr() for each in kept]


def test_what_jitnorm_does_not_compute_goes_to_the_next_provider() -> None:
    x, weight = rows(4), weight_of(torch.bfloat16)
    takes = implementation(ops.rms_norm).supports_args
    assert takes(x, weight, EPS)
    assert takes(x[::2], None, EPS)
    assert not takes(x, weight, EPS, 32)
    assert not takes(x, weight, EPS, variance_size=32)
    assert not takes(x.half(), weight, EPS)
    assert not takes(x.double(), None, EPS)
    assert not takes(x.t(), None, EPS)
    assert not takes(x.to("meta"), None, EPS)
    takes = implementation(ops.fused_add_rms_norm).supports_args
    assert takes(x, x.clone(), weight, EPS)
    assert not takes(x, x.float(), weight, EPS)
    with ops.rms_norm.set_priority(["jitnorm", "native"]):
        assert ops.rms_norm.dispatch(x, weight, EPS, 32).provider == "native"


def test_torch_s_checks_of_operators_pass() -> None:
    with ops.rms_norm.set_priority(["jitnorm", "native"]):
        torch.library.opcheck(torch.ops.vllm_ir.rms_norm.default, (rows(4), weight_of(torch.bfloat16), EPS))
    with ops.fused_add_rms_norm.set_priority(["jitnorm", "native"]):
        args = rows(4), rows(4), weight_of(torch.bfloat16), EPS
        torch.library.opcheck(torch.ops.vllm_ir.fused_add_rms_norm.default, args)


def test_vllm_s_compiler_lowers_its_ops_to_jitnorm_s() -> None:
    config = pytest.importorskip("vllm.config", reason="vLLM's dependencies are not installed")
    lowering = pytest.importorskip("vllm.compilation.passes.ir.lowering_pass")
    weight = weight_of(torch.bfloat16)

    def program(x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = ops.rms_norm(x + 1, weight, EPS)
        return ops.fused_add_rms_norm(first * 2, residual, weight, EPS), ops.rms_norm(x, weight, EPS, 32)

    x, residual = rows(4), rows(4)
    both = ops.rms_norm.set_priority(["jitnorm", "native"]), ops.fused_add_rms_norm.set_priority(["jitnorm", "native"])
    # Of a whole configuration, of a model and devices, the pass reads this part alone.
    parts = SimpleNamespace(compilation_config=config.CompilationConfig(), model_config=None, device_config=None)
    with both[0], both[1], ir.enable_torch_wrap(True):
        lower = lowering.VllmIRLoweringPass(parts)
        expected = program(x, residual)
        options = {"post_grad_custom_post_pass": lower, "fx_graph_cache": False}
        made = torch.compile(program, fullgraph=True, options=options)(x, residual)
    assert torch.equal(made[0][0], expected[0][0])
    assert torch.equal(made[0][1], expected[0][1])
    chosen = {provider for op in lower.selected_impls.values() for provider in op.values()}
    assert chosen == {"jitnorm", "native"}
    assert set(lower.selected_impls["fused_add_rms_norm"].values()) == {"jitnorm"}
