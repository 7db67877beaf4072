"""The two functions for whole models: one replaces what jitnorm computes, the other restores it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from jitnorm.integrations.transformers.formats import Format, format_of
from jitnorm.integrations.transformers.linears import LinearForward, MlpForward
from jitnorm.integrations.transformers.mlp import gated_mlp
from jitnorm.integrations.transformers.norms import NormForward, NormKind, may_be_norm, norm_kind
from jitnorm.integrations.transformers.replacement import Replacement, has_hooks, is_replaced, replacement_of
from jitnorm.integrations.transformers.report import Report

REPLACED = "its forward is replaced by others"


def apply(model: torch.nn.Module, quant: str | None = None) -> Report:
    """Make jitnorm compute the norms of a model and, with `quant`, its linears in low precision.

    Modules, weights and state dicts stay as they are: only `forward` methods are replaced, until `undo`. Unknown
    modules are left alone, and the report says why. docs/transformers.md has the details.

    Args:
        model: a Transformers model, or any other torch model, on one device.
        quant: None: only norms, which round as the model's do; ``"fp8"``, ``"mxfp8"`` or ``"nvfp4"``: linears as well,
            except for the one that computes logits. Their weights must be bfloat16, and the model then runs only under
            `torch.no_grad`. MXFP8 and NVFP4 need a Blackwell GPU, FP8 one from Ada on; on the CPU, values are decoded
            and multiplied in float32, to check a model rather than to serve it.

    Returns:
        what was replaced, and what was not.

    Raises:
        ValueError: `quant` is unknown or not supported by the device; `apply` was already called on the model; the
            model is sharded or, with `quant`, is already quantized or has no linear to quantize. Nothing is changed
            then.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.RMSNorm(64, eps=1e-6), torch.nn.Linear(64, 32)).bfloat16()
        >>> print(apply(model, quant="fp8"))
        1 norms: rmsnorm rounding=output
        1 linears: fp8
        >>> with torch.no_grad():
        ...     model(torch.ones(2, 64, dtype=torch.bfloat16)).shape
        torch.Size([2, 32])
        >>> undo(model)
    """
    to = format_of(quant)
    _check(model, to)
    norms: dict[str, str] = {}
    linears: dict[str, str] = {}
    left_alone: dict[str, str] = {}
    replacements = [*_norms(model, to, norms, left_alone)]
    if to is not None:
        replacements += _linears(model, to, linears, left_alone)
        if not linears:
            reasons = "; ".join(f"{name}: {why}" for name, why in list(left_alone.items())[:3])
            raise ValueError(f"model: has no linear to multiply in {to.name} ({reasons or 'none at all'})")
    for replacement in replacements:
        replacement.install()
    return Report(norms, linears, left_alone)


def undo(model: torch.nn.Module) -> None:
    """Restore the `forward` methods of a model that `apply` replaced.

    Raises:
        ValueError: none is replaced.
    """
    found = [replacement for module in model.modules() if (replacement := replacement_of(module))]
    if not found:
        raise ValueError("model: has nothing to undo; it was not applied, or has been undone")
    for replacement in found:
        replacement.remove()


def _check(model: torch.nn.Module, to: Format | None) -> None:
    if any(replacement_of(module) for module in model.modules()):
        raise ValueError("model: has been applied already; call undo(model) first")
    sharded = [name for name, each in model.named_parameters() if hasattr(each, "placements")]
    if sharded or (getattr(model, "_tp_size", None) or 1) > 1:
        where = f": {sharded[0]} is a DTensor" if sharded else ""
        raise ValueError(f"model: is sharded{where}; load it without tp_plan, on one device")
    if to is None:
        return
    if getattr(model, "hf_quantizer", None) is not None or getattr(model, "is_quantized", False):
        raise ValueError("model: is quantized already; pass quant=None, or load it in bfloat16")
    for device in {each.device for each in model.parameters()}:
        to.check(device)


def _norms(
    model: torch.nn.Module, to: Format | None, norms: dict[str, str], left_alone: dict[str, str]
) -> Iterator[Replacement]:
    """The replacements of a model's norms; notes their names and those of other norms."""
    kinds: dict[str, NormKind | None] = {}
    for name, module in model.named_modules():
        if may_be_norm(module) and not is_replaced(module):
            key = _key(module)
            if key not in kinds:
                kinds[key] = norm_kind(module)
            kind = kinds[key]
            if kind is not None:
                norms[name] = str(kind)
                yield NormForward(module, kind, to)
                continue
        if "norm" in type(module).__name__.lower() and not module._modules:
            unknown = f"{type(module).__name__} is no RMSNorm that jitnorm knows"
            left_alone[name] = REPLACED if is_replaced(module) else unknown


def _key(module: torch.nn.Module) -> str:
    """Everything that decides how a norm computes: its class, its settings, its dtype and its size."""
    ((name, weight),) = module._parameters.items()
    settings = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    return f"{id(type(module))} {sorted(settings.items(), key=repr)} {name} {weight.dtype} {weight.shape}"


def _linears(
    model: torch.nn.Module, to: Format, linears: dict[str, str], left_alone: dict[str, str]
) -> Iterator[Replacement]:
    """The replacements of a model's linears; notes their names and those of other linears."""
    reasons = _reasons(model, to)
    done: set[torch.nn.Module] = set()
    names = {module: name for name, module in model.named_modules()}
    for module, name in names.items():
        parts = None if is_replaced(module) else gated_mlp(module)
        if parts is not None and not any(each in reasons or has_hooks(each) for each in parts.linears):
            done.update(parts.linears)
            linears.update({names[each]: f"{to.name}, in a gated MLP" for each in parts.linears})
            yield MlpForward(module, parts, to)
        elif module in reasons:
            left_alone[name] = reasons[module]
        elif isinstance(module, torch.nn.Linear) and module not in done:
            linears[name] = to.name
            yield LinearForward(module, to)
        elif any(each is not None and each.ndim > 2 for each in module._parameters.values()):
            left_alone[name] = "its weights are those of experts, in one tensor"


def _reasons(model: torch.nn.Module, to: Format) -> dict[torch.nn.Module, str]:
    """The linears of a model that are left alone, and why."""
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.Embedding)}
    linears = [each for each in model.modules() if isinstance(each, torch.nn.Linear)]
    reasons = {each: "gives the logits" if each is output else _reason(each, to, embeddings) for each in linears}
    return {each: why for each, why in reasons.items() if why}


def _reason(linear: torch.nn.Linear, to: Format, embeddings: set[int]) -> str:
    weight = linear.weight
    if type(linear) is not torch.nn.Linear:
        return f"is a {type(linear).__name__}"
    if is_replaced(linear):
        return REPLACED
    if type(weight) is not torch.nn.Parameter:
        return f"its weight is a {type(weight).__name__}"
    if id(weight) in embeddings:
        return "its weight is that of an embedding"
    if weight.dtype != torch.bfloat16:
        return f"its weight is {weight.dtype}, expected torch.bfloat16"
    if weight.is_inference():
        return "its weight was made under torch.inference_mode, which hides changes"
    if any(size % to.multiple for size in weight.shape):
        return f"its shape is {tuple(weight.shape)}, and torch wants multiples of {to.multiple}"
    return ""
