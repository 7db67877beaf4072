"""Runs programs through the pass that fuses norms, on graphs like inductor's, without compiling them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table

from jitnorm.torch import fuse

ROWS, SIZE = 4, 128
WEIGHT = torch.linspace(0.5, 2, SIZE).bfloat16()


def values(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@dataclass
class Run:
    """A program's graph before and after the pass, the ops in it afterwards, and its results."""

    before: str
    after: str
    ops: list[str]
    result: Any


def run(program: Callable[..., Any], *inputs: Any, **options: bool) -> Run:
    """Run a program with its norms fused; the arguments are the program's and those of `fuse`."""
    seen: list[Any] = []

    def compile_graph(found: Any, _: Any) -> Any:
        found.graph.eliminate_dead_code()
        seen.append(found.code)
        fuse(**options)["post_grad_custom_pre_pass"](found.graph, is_inference=True)
        found.graph.lint()
        found.recompile()
        seen.extend((found.code, [n.target.name() for n in found.graph.nodes if "jitnorm" in str(n.target)]))
        return make_boxed_func(found.forward)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=compile_graph, decompositions=select_decomp_table())
    with torch.no_grad():
        result = torch.compile(program, fullgraph=True, backend=backend)(*inputs)
    return Run(*seen, result)
