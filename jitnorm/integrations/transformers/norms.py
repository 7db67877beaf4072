"""Finds RMSNorm in models by what a module's `forward` computes, whatever the module's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from jitnorm.integrations.transformers.formats import Format
from jitnorm.integrations.transformers.handing import Handed, hand_over
from jitnorm.integrations.transformers.replacement import Replacement
from jitnorm.ops.general import norm_quantize
from jitnorm.ops.norm import gemma_rmsnorm, rmsnorm
from jitnorm.torch.fusion.nodes import aten
from jitnorm.torch.fusion.norms import find_norm

_DECOMPOSITIONS = get_decompositions([aten._to_copy, aten._fused_rms_norm])


@dataclass(frozen=True)
class NormKind:
    """The kind of an RMSNorm.

    Attributes:
        eps: added to the mean of squares.
        unit_bias: whether 1 is added to the weight.
        rounding: the rounding of the op with the same bits.
    """

    eps: float
    unit_bias: bool
    rounding: str

    def __str__(self) -> str:
        return f"{'gemma_rmsnorm' if self.unit_bias else 'rmsnorm'} rounding={self.rounding}"


def may_be_norm(module: torch.nn.Module) -> bool:
    """Whether a module has a vector as its weight, and no other parameter."""
    parameters = list(module._parameters.values())
    is_one = len(parameters) == 1 and parameters[0] is not None and parameters[0].ndim == 1
    return is_one and not module._modules and not any(map(torch.is_tensor, module._buffers.values()))


def norm_kind(module: torch.nn.Module) -> NormKind | None:
    """The RMSNorm that a module for which `may_be_norm` holds computes for inputs in the dtype of its weight."""
    ((name, weight),) = module._parameters.items()
    with FakeTensorMode():
        rows, vector = (torch.empty(*shape, weight.numel(), dtype=weight.dtype) for shape in ((2,), ()))

    def forward(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return functional_call(module, {name: weight}, (x,))

    try:
        with torch.no_grad():
            decomposed = make_fx(forward, decomposition_table=_DECOMPOSITIONS)(rows, vector)
            traced = make_fx(functionalize(decomposed))(rows, vector)  # decompositions may write in place
    except Exception:  # any error, from a forward that is not a norm's
        return None
    return _kind_of(traced)


def _kind_of(traced: GraphModule) -> NormKind | None:
    graph = traced.graph
    x, weight = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    for root in graph.find_nodes(op="call_function", target=aten.rsqrt.default):
        norm = find_norm(root)
        if (
            norm is not None
            and (norm.x, norm.residual, norm.weight) == (x, None, weight)
            and output.args[0] in norm.results
        ):
            return NormKind(norm.eps, norm.unit_bias, "hf" if "normalized" in norm.rounds else "output")
    return None


class NormForward(Replacement):
    """An RMSNorm, which also encodes its result where linears need codes.

    Args:
        module: the norm.
        kind: its kind.
        to: the format of the linears, or None.
    """

    def __init__(self, module: torch.nn.Module, kind: NormKind, to: Format | None) -> None:
        super().__init__(module)
        self.kind, self.to = kind, to
        self.feeds_linears = False  # until a linear asks for codes
        (self._name,) = module._parameters

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Normalize the rows of one tensor."""
        (x,) = (*args, *named.values())
        weight = getattr(self.module, self._name)
        if not _are_taken(x, weight):
            return self.original(*args, **named)
        kind, to = self.kind, self.to
        hands_over = to is not None and not torch.is_grad_enabled() and _writes_are_counted()
        if to is None or not hands_over or not self.feeds_linears:
            norm = gemma_rmsnorm if kind.unit_bias else rmsnorm
            y = norm(x, weight, kind.eps, rounding=kind.rounding)
            return hand_over(y, Handed(self, None)) if hands_over else y
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        q = norm_quantize(
            x, weight, spec=to.spec, eps=kind.eps, unit_bias=kind.unit_bias, y_out=y, rounding=kind.rounding,
            **to.scales,
        )  # fmt: skip
        return hand_over(y, Handed(self, q))


def _writes_are_counted() -> bool:
    """Whether writes to a tensor since it was encoded can be detected; compilers merge equal calls instead."""
    return not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled()


def _are_taken(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the op accepts a norm's tensors; if not, the module's original `forward` is called."""
    size = weight.numel()
    is_like = x.dtype == weight.dtype and x.device == weight.device and x.shape[-1:] == weight.shape
    is_dense = size == 1 or (x.stride(-1) == 1 and weight.stride(0) == 1)
    return is_like and is_dense and x.device.type in ("cpu", "cuda")
