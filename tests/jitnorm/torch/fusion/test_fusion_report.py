"""Fusing is off by default, leaves gradients alone, and is reported, also for graphs that inductor has cached."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import plain_norms
import pytest
import torch
from fused_graphs import run
from torch._dynamo.utils import counters
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import fresh_cache

from jitnorm.torch import fuse, fusions

X, WEIGHT = torch.linspace(-1, 1, 256).reshape(2, 128), torch.linspace(0.5, 2, 128)


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    """Forget all graphs and counts."""
    torch.compiler.reset()
    counters.clear()
    with fresh_cache():
        yield
    torch.compiler.reset()


def norm(x: Any, weight: Any) -> Any:
    return plain_norms.llama(x, weight)


def test_options_are_a_patch_of_the_configuration_too() -> None:
    with torch.no_grad(), torch._inductor.config.patch(fuse()):
        torch.compile(norm, fullgraph=True)(X, WEIGHT)
    assert [each.op for each in fusions()] == ["rmsnorm"]


def test_only_programs_that_ask_for_it_are_changed_also_when_they_come_from_a_cache() -> None:
    with torch.no_grad():
        torch.compile(norm, fullgraph=True)(X, WEIGHT)
        assert fusions() == []
        for count, (options, hits) in enumerate([(fuse(), 0), (fuse(), 1), (fuse(norms=False), 1)], 1):
            torch.compiler.reset()
            torch.compile(norm, fullgraph=True, options=options)(X, WEIGHT)
            assert counters["aot_autograd"]["autograd_cache_hit"] == hits
            assert sum(each.count for each in fusions()) == count
    assert [(each.op, each.reason, each.count) for each in fusions()] == [
        ("rmsnorm", "", 2), ("", "nothing quantizes it", 1)
    ]  # fmt: skip


def test_where_gradients_are_recorded_nothing_is_fused() -> None:
    """This includes versions of torch that do not tell passes the purpose of graphs."""
    weight = WEIGHT.clone().requires_grad_()
    norm(X, weight).sum().backward()
    for options in (fuse(), {name: partial(each) for name, each in fuse().items()}):
        torch.compiler.reset()
        again = WEIGHT.clone().requires_grad_()
        torch.compile(norm, fullgraph=True, options=options)(X, again).sum().backward()
        torch.testing.assert_close(again.grad, weight.grad)
    assert {(each.op, each.reason) for each in fusions()} == {("", "gradients are recorded")}


def test_a_program_that_asks_for_its_roundings_keeps_them() -> None:
    """Inductor itself also omits them unless asked for them."""
    x, weight = X.bfloat16(), WEIGHT.bfloat16()
    with torch._inductor.config.patch(emulate_precision_casts=True):
        assert run(plain_norms.llama, x, weight).ops == []
        assert run(plain_norms.gemma, x, weight).ops == ["jitnorm::gemma_rmsnorm"]
    reason = "emulate_precision_casts asks to round normalized, which no op does"
    assert [(each.op, each.reason) for each in fusions()] == [("", reason), ("gemma_rmsnorm", "")]


def test_exported_programs_are_fused_if_they_are_compiled_without_gradients() -> None:
    class Quantized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.RMSNorm(128, eps=1e-6).bfloat16()

        def forward(self, x: Any) -> Any:
            return plain_norms.token_of_vllm(self.norm(x))

    exported = torch.export.export(Quantized(), (X.bfloat16(),)).run_decompositions(select_decomp_table())
    fuse_pass = fuse()["post_grad_custom_pre_pass"]
    fuse_pass(exported.graph_module.graph, is_inference=True)
    with torch.no_grad():
        fuse_pass(exported.graph_module.graph, is_inference=True)
    reason = "a tensor requires grad and is not compiled under torch.no_grad()"
    assert [(each.op, each.reason) for each in fusions()] == [("", reason), ("norm_quantize", "")]
    exported.graph_module.graph.lint()


def test_a_fusion_names_the_line_of_the_program_and_reads_as_a_sentence() -> None:
    module = torch.nn.RMSNorm(128, eps=1e-6).bfloat16()

    def block(x: Any, residual: Any) -> Any:
        total = x + residual
        return module(total), total

    with torch.no_grad():
        torch.compile(block, fullgraph=True, options=fuse())(X.bfloat16(), X.bfloat16())
    (fusion,) = fusions()
    line = block.__code__.co_firstlineno + 2
    assert fusion.place == f"{__file__}:{line} in block"
    assert str(fusion) == f"1 x add_rmsnorm at {fusion.place}; does not round sum"
