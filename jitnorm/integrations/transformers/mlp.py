"""Gated MLPs in models: found by what a module does with its linears, whatever they are called."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch.fx import Graph, Node, Tracer
from torch.fx.experimental.proxy_tensor import make_fx

from jitnorm.torch.fusion.nodes import aten


@dataclass(frozen=True)
class GatedMlp:
    """The parts of ``down(activation(gate(x)) * value(x))``.

    Attributes:
        gates: the linears of gates and values, or one that computes both side by side.
        down: the last linear.
        activation: the gates' activation, by its name in `jitnorm.silu_and_mul_quantize`.
        values_first: whether values come before gates.
    """

    gates: tuple[torch.nn.Linear, ...]
    down: torch.nn.Linear
    activation: str
    values_first: bool

    @property
    def linears(self) -> tuple[torch.nn.Linear, ...]:
        """All its linears."""
        return (*self.gates, self.down)


class _Shallow(Tracer):  # type: ignore[misc]
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True


def gated_mlp(module: torch.nn.Module) -> GatedMlp | None:
    """The gated MLP that a module computes from one tensor, if any."""
    if module._parameters or sum(isinstance(each, torch.nn.Linear) for each in module.children()) < 2:
        return None
    try:
        graph = _Shallow().trace(module)
    except Exception:  # any error, from a forward that depends on its input's values or shapes
        return None
    return _parts_of(module, graph)


def _parts_of(module: torch.nn.Module, graph: Graph) -> GatedMlp | None:
    (output,) = graph.find_nodes(op="output")
    inputs = graph.find_nodes(op="placeholder")
    down, product = _called(module, output.args[0])
    is_product = isinstance(product, Node) and product.target is operator.mul
    if len(inputs) != 1 or not is_product or not isinstance(down, torch.nn.Linear):
        return None
    for gate, value in permutations(product.args):
        act, activated = _called(module, gate)
        activation = None if act is None else _activation(act)
        pair, values_first = _pair(module, activated, value, inputs[0])
        if pair and activation is not None:
            return GatedMlp(pair, down, activation, values_first)
    return None


def _pair(module: torch.nn.Module, gate: Any, value: Any, x: Node) -> tuple[tuple[torch.nn.Linear, ...], bool]:
    """The linears of gates and values that read x, and whether values come first; none if there are none."""
    (one, x_of_gate), (other, x_of_value) = _called(module, gate), _called(module, value)
    if isinstance(one, torch.nn.Linear) and isinstance(other, torch.nn.Linear):
        return ((one, other), False) if x_of_gate is x_of_value is x else ((), False)
    places = [
        node.args[1] if isinstance(node, Node) and node.target is operator.getitem else None for node in (gate, value)
    ]
    if places not in ([0, 1], [1, 0]) or gate.args[0] is not value.args[0]:
        return (), False
    halves = gate.args[0]
    both, read = _called(module, halves.args[0]) if _are_halves(halves) else (None, None)
    return ((both,), places == [1, 0]) if isinstance(both, torch.nn.Linear) and read is x else ((), False)


def _are_halves(node: Node) -> bool:
    """Whether a node splits the last dimension into halves."""
    dim = node.kwargs.get("dim", node.args[2] if len(node.args) > 2 else 0)
    return node.target in ("chunk", torch.chunk) and node.args[1:2] == (2,) and dim == -1


def _called(module: torch.nn.Module, node: Any) -> tuple[torch.nn.Module | None, Any]:
    """The submodule that a node calls, and its only argument."""
    if not isinstance(node, Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None, None
    return module.get_submodule(str(node.target)), node.args[0]


def _activation(module: torch.nn.Module) -> str | None:
    """The name of the activation that a module computes."""
    try:
        graph = make_fx(lambda x: module(x))(torch.zeros(2)).graph
    except Exception:  # any error, from a module that is not an activation
        return None
    calls = graph.find_nodes(op="call_function", target=aten.silu.default)
    gelus = graph.find_nodes(op="call_function", target=aten.gelu.default)
    if len(list(graph.nodes)) != 3:  # the input, the call and the output
        return None
    if calls:
        return "silu"
    return {"tanh": "gelu_tanh", "none": "gelu"}[gelus[0].kwargs.get("approximate", "none")] if gelus else None
