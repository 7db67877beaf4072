"""The pass over inductor's graphs that fuses norms."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch._inductor import config, custom_graph_pass
from torch.fx import Graph, Node

from jitnorm import __version__, catalogue
from jitnorm.torch import library
from jitnorm.torch.fusion.fp8 import Encoding, find_encoding, quantized_value
from jitnorm.torch.fusion.nodes import aten, prims
from jitnorm.torch.fusion.norms import Norm, find_norm, root_mean_square
from jitnorm.torch.fusion.report import Fusion, place_of, record
from jitnorm.torch.fusion.rewrite import NotFused, fuse
from jitnorm.torch.schemas import config_text

# Before 2.12, torch does not tell passes whether a graph is for inference.
_Pass: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", custom_graph_pass.CustomGraphPass)


@dataclass(frozen=True)
class FusePass(_Pass):  # type: ignore[misc]
    """Replaces norms, and their quantization, by ops.

    Args:
        norms: whether norms that nothing quantizes are fused, too.
    """

    norms: bool

    def __call__(self, graph: Graph, is_inference: bool | None = None) -> None:
        """Rewrite a graph, and record what happened to each norm in it."""
        library.register()
        if is_inference is None:
            is_inference = not any(node.name.startswith("primals") for node in graph.find_nodes(op="placeholder"))
        for node in graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
            graph.erase_node(node)  # from exported programs; inductor itself removes them, but later
        roots = list(graph.find_nodes(op="call_function", target=aten.rsqrt.default))
        codes = _codes_by_root(graph, roots)
        for root in roots:
            if root_mean_square(root) is not None:
                record(self._treated(graph, root, codes[root], is_inference))

    def uuid(self) -> str:
        """Identity of the pass in the keys of inductor's caches."""
        return f"{__version__} {_digest()} {self.norms}"

    def _treated(self, graph: Graph, root: Node, codes: list[Node], is_inference: bool) -> Fusion:
        """Fuse a norm if that is possible."""
        place = place_of(root)
        if not is_inference:
            return Fusion("", "", place, (), "gradients are recorded")
        norm = find_norm(root)  # again, because its inputs may have been replaced
        if norm is None:
            return Fusion("", "", place, (), "no op computes it as it is written")
        encodings = [found for node in codes if (found := find_encoding(node, norm.values))]
        alike = [each for each in encodings if (each.spec, each.scale) == (encodings[0].spec, encodings[0].scale)]
        reason = "no op quantizes it as it is written" if codes and not alike else ""
        for attempt in [*([alike] if alike else ()), *([[]] if self.norms else ())]:
            unrounded = _unrounded(norm, attempt)
            try:
                if unrounded and config.emulate_precision_casts:
                    raise NotFused(f"emulate_precision_casts asks to round {', '.join(unrounded)}, which no op does")
                dispatcher = fuse(graph, norm, attempt)
            except NotFused as error:
                reason = str(error)
                continue
            return Fusion(dispatcher.op.name, config_text(dispatcher.op, dispatcher.options), place, unrounded, reason)
        return Fusion("", "", place, (), reason or "nothing quantizes it")


def _codes_by_root(graph: Graph, roots: list[Node]) -> dict[Node, list[Node]]:
    """The codes of quantized norms, by the roots that identify the norms."""
    owners = {value: root for root in roots if (norm := find_norm(root)) for value in norm.values}
    found: dict[Node, list[Node]] = {root: [] for root in roots}
    for node in graph.find_nodes(op="call_function", target=prims.convert_element_type.default):
        value = quantized_value(node, owners)
        if value is not None:
            found[owners[value]].append(node)
    return found


def _unrounded(norm: Norm, encodings: list[Encoding]) -> tuple[str, ...]:
    """The program's roundings to 16 bits that the op omits."""
    values = {value for each in encodings for value in each.values}
    return (*norm.rounds, "norm") if norm.is_narrow and values.intersection(norm.results) else norm.rounds


@cache
def _digest() -> str:
    """A digest of everything that affects the result of the pass."""
    folders = (Path(__file__).parent, Path(__file__).parents[1], Path(catalogue.__file__).parent)
    files = sorted(file for folder in folders for file in folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
