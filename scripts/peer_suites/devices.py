"""Devices for tests that need a Blackwell GPU: other GPUs pose as one; without a GPU, ``cuda`` is the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace, TracebackType
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

_HAS_GPU, _properties = torch.cuda.is_available(), torch.cuda.get_device_properties


def _blackwells(device: Any = 0) -> SimpleNamespace:
    """Properties of a GPU that has FP4; what else is asked of it, the one here has, or none."""
    sizes = ("multi_processor_count", "total_memory", "name")
    found = _properties(device) if _HAS_GPU else None
    return SimpleNamespace(major=10, minor=0, **{size: getattr(found, size, 0) for size in sizes})


_CAPABILITY = patch.multiple(
    torch.cuda, get_device_capability=lambda device=None: (10, 0), get_device_properties=_blackwells
)


def blackwell_or_cpu() -> AbstractContextManager[Any]:
    """A context in which tests find a GPU that has FP4, as which jitnorm takes none: it asks the driver."""
    return _CAPABILITY if torch.cuda.is_available() else CudaOnCpu()


class CudaOnCpu(TorchFunctionMode):
    """A context in which torch puts on the CPU whatever it is told to put on a GPU."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The call with another device."""
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to and args[1:] and type(args[1]) is int:
            args = (args[0], "cpu", *args[2:])
        keywords = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if type(keywords.get("device")) is int:
            keywords["device"] = "cpu"
        return function(*map(_on_cpu, args), **keywords)

    def __enter__(self) -> CudaOnCpu:
        self._patches = ExitStack()
        self._patches.enter_context(_CAPABILITY)
        for module in (torch.cuda, torch.accelerator):
            for name in _GPU.keys() & vars(module).keys():
                self._patches.enter_context(patch.object(module, name, _GPU[name]))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._patches.close()


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


def _nothing(*args: Any, **keywords: Any) -> None:
    return None


_GPU: dict[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "synchronize": _nothing,
    "manual_seed_all": _nothing,
    "empty_cache": _nothing,
    "set_device_index": _nothing,
    "mem_get_info": lambda device=None: (0, 0),  # tests of large tensors skip themselves
}
