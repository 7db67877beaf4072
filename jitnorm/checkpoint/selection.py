"""Selects the weights of a checkpoint that are quantized, and those that stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate

from jitnorm.checkpoint.stored import StoredTensor

FLOATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_ANY_FLOAT = ("BF", "F")
WEIGHT = ".weight"
# Modules that stay as they are: heads, embeddings, norms and routers.
_KEPT = re.compile(
    r"(.*\.)?(lm_head|embed_out|score|wte|wpe|shared|\w*embed\w*|\w*norm\w*|ln_\w+|gate|\w*router\w*|shared_expert_gate)"
    r"|output|(.*\.)?router\..*"
)
# Engines merge each of these groups into one matrix with one global scale.
_FUSED = (
    ("q_proj", "k_proj", "v_proj", "g_proj"), ("query", "key", "value"), ("wq", "wk", "wv"), ("gate_proj", "up_proj"),
    ("w1", "w3"), ("c_fc_0", "c_fc_1"), ("q_a_proj", "kv_a_proj_with_mqa"), ("in_proj_qkv", "in_proj_z"),
    ("in_proj_b", "in_proj_a"),
)  # fmt: skip
_NARROWEST = 16
_GROUP_OF = {name: group for group in _FUSED for name in group}


@dataclass(frozen=True)
class Selection:
    """The parts of a checkpoint, quantized and not.

    Attributes:
        weights: the tensors to quantize, by their module.
        groups: the modules of each matrix that engines fuse, by its first module, including groups of one.
        ignored: modules with a matrix that stays as it is.
    """

    weights: dict[str, StoredTensor]
    groups: dict[str, list[str]]
    ignored: list[str]


def select(tensors: Iterable[StoredTensor], ignore: Sequence[str] = ()) -> Selection:
    """Select the weights of linear layers: matrices of floats named ``*.weight``.

    Args:
        tensors: all tensors of the checkpoint.
        ignore: patterns of further modules to leave as they are: a name in which ``*`` stands for any characters, or
            ``re:`` and a regular expression that the name begins with.

    Raises:
        ValueError: a pattern matches nothing, no weight is left, only part of a fused matrix is ignored, or a tensor
            is of no such dtype or holds the weights of several experts.
    """
    candidates = {
        _module_of(each): each for each in tensors if each.dtype.startswith(_ANY_FLOAT) and _is_candidate(each)
    }
    patterns = {text: _compiled(text) for text in ignore}
    for text, pattern in patterns.items():
        if not any(map(pattern.match, candidates)):
            raise ValueError(f"ignore: {text!r} matches no weight; names are such as {', '.join(list(candidates)[:3])}")
    ignored = {
        name for name in candidates if _KEPT.fullmatch(name) or any(each.match(name) for each in patterns.values())
    }
    weights = {name: tensor for name, tensor in candidates.items() if name not in ignored}
    if not weights:
        raise ValueError("in: no weight is left to quantize: no matrix is named *.weight and not ignored; ignore less")
    for name, tensor in weights.items():
        if tensor.dtype not in FLOATS:  # engines would expect scales, unless the configuration names the module
            raise ValueError(
                f"in: {tensor.name} is {tensor.dtype}; allowed are {', '.join(FLOATS)}: convert it, or leave it as it "
                f"is: --ignore '{name}'"
            )
        if len(tensor.shape) != 2:
            raise ValueError(
                f"in: {tensor.name} of shape {tensor.shape} holds several experts, which is not supported; "
                "split it into matrices (N, K) of one expert each, such as experts.0.down_proj.weight, or leave it "
                f"as it is: --ignore '{name}*'"
            )
    groups = _groups(weights)
    _check_whole(weights, ignored)
    return Selection(weights, groups, sorted({_ignored_as(candidates[name]) for name in ignored}))


def _is_candidate(tensor: StoredTensor) -> bool:
    """Whether it is a matrix, or one per expert; convolution kernels are too narrow to qualify."""
    is_weight = tensor.name.endswith(WEIGHT)
    if len(tensor.shape) == 2:
        return is_weight
    is_wide = is_weight and min(tensor.shape[1:], default=0) >= _NARROWEST
    return len(tensor.shape) == 3 and (is_wide or "experts" in tensor.name.split("."))


def _ignored_as(tensor: StoredTensor) -> str:
    """The module to ignore for a tensor; the tensors of several experts may belong to one."""
    return _module_of(tensor) if len(tensor.shape) == 2 else tensor.name.rpartition(".")[0]


def _module_of(tensor: StoredTensor) -> str:
    return tensor.name.removesuffix(WEIGHT)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text[3:] if text.startswith("re:") else translate(text))
    except re.error as error:
        raise ValueError(f"ignore: {text!r} is not a regular expression: {error}") from None


def _key_of(module: str) -> tuple[str, tuple[str, ...]]:
    parent, _, name = module.rpartition(".")
    return parent, _GROUP_OF.get(name, (name,))


def _groups(weights: Mapping[str, StoredTensor]) -> dict[str, list[str]]:
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for module in sorted(weights):
        found.setdefault(_key_of(module), []).append(module)
    return {modules[0]: modules for modules in found.values()}


def _check_whole(weights: Iterable[str], ignored: Iterable[str]) -> None:
    kept = {_key_of(module): module for module in ignored}
    for module in weights:
        other = kept.get(_key_of(module))
        if other is not None:
            raise ValueError(
                f"ignore: leaves {other} as it is, but not {module}, which engines fuse with it; ignore both or neither"
            )
