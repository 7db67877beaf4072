"""Tensors that depend on constants alone: torch computes them once for each stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar

import torch
from torch.compiler import is_compiling

from jitnorm.interop import framework_of

Made = TypeVar("Made", torch.Tensor, tuple[torch.Tensor, torch.Tensor])


def remembered(most: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Decorate a function that makes tensors from a device and constants: it keeps the first `most` results.

    They are never replaced, because captured graphs may read them. Another stream has its own, because those of one
    may not be written yet when it reads them.
    """

    def decorate(make: Callable[..., Made]) -> Callable[..., Made]:
        kept: dict[tuple[Any, ...], Made] = {}

        def find(device: torch.device, *constants: Any) -> Made:
            if is_compiling() or torch._C._len_torch_dispatch_stack():
                return make(device, *constants)
            # `torch.cuda.current_stream` takes several times as long.
            gpu = _gpu_of(device)
            stream = 0 if gpu is None else torch._C._cuda_getCurrentRawStream(gpu)
            key = stream, device, *constants
            found = kept.get(key)
            if found is None:
                with torch.inference_mode(False):
                    found = make(device, *constants)
                if len(kept) < most and all(map(_may_be_kept, found if isinstance(found, tuple) else (found,))):
                    found = kept.setdefault(key, found)
            return found

        return find

    return decorate


@cache
def _gpu_of(device: torch.device) -> int | None:
    """The index of a GPU; None for another device. Cached, because torch takes 0.3 us to tell the type of a device."""
    return device.index if device.type == "cuda" else None


def _may_be_kept(tensor: torch.Tensor) -> bool:
    """Whether it is no part of a transform or of a graph that is being captured, whose memory is the graph's."""
    with torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext():
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
    return framework_of(tensor, "tensor").refusal(tensor, is_output=True) is None
