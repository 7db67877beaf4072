"""Fuses norms and their quantization in programs compiled by torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitnorm.torch.fusion.report import Fusion


def fuse(*, norms: bool = True) -> dict[str, Any]:
    """Options for `torch.compile` that turn RMSNorm in plain torch, and its quantization, into single ops.

    Only graphs without gradients are changed. docs/torch.md says what is recognized, and how results may differ;
    `fusions` lists what was fused.

    Args:
        norms: whether norms that nothing quantizes are fused, too.

    Returns:
        the options, which can be combined with others, or passed to ``torch._inductor.config.patch``.

    Example:
        >>> import torch
        >>> norm = torch.nn.RMSNorm(64, eps=1e-6).bfloat16()
        >>> compiled = torch.compile(norm, fullgraph=True, options=fuse())
    """
    # Importing inductor takes a second, which only programs that compile should spend.
    from jitnorm.torch.fusion.compiler_pass import FusePass

    return {"post_grad_custom_pre_pass": FusePass(norms)}


def fusions() -> list[Fusion]:
    """Report what `fuse` did with each norm in programs that this process compiled, or loaded from inductor's cache.

    Example:
        >>> for fusion in fusions():
        ...     assert fusion.op or fusion.reason
    """
    from jitnorm.torch.fusion import report

    return report.fusions()
