"""Where a command runs: on the first GPU if it can be used, else on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from jitnorm.commands.memory import CudaMemory, HostMemory
from jitnorm.dispatch import cuda_target
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher


@dataclass(frozen=True)
class Place:
    """A device with the memory to hand tensors to it.

    Attributes:
        target: what kernels are built for there.
        name: the device, for people to read.
        memory: how arrays get there and back.
        why_cpu: why it is not a GPU; empty if it is one.
    """

    target: Target
    name: str
    memory: HostMemory | CudaMemory
    why_cpu: str = ""


def first_gpu() -> Target:
    """The target of ``cuda:0``.

    Raises:
        RuntimeError: there is no driver or no GPU, or the launcher that asks for them cannot be built.
        ValueError: the GPU is not supported.
    """
    if launcher().device_count() == 0:
        raise RuntimeError("the CUDA driver sees no GPU")
    return cuda_target(0)


def target_or_default(name: str | None) -> tuple[Target, str]:
    """The target of a name; without one that of the first GPU, else the CPU, with why there is no GPU.

    Raises:
        ValueError: the name is not known.
    """
    if name is not None:
        return Target(name), ""
    try:
        return first_gpu(), ""
    except (RuntimeError, ValueError) as error:
        return Target("cpu"), str(error)


def find_place(*, only_cpu: bool = False) -> Place:
    """The first GPU, if its kernels can be built and its memory reached; else the CPU.

    Args:
        only_cpu: do not look for a GPU.

    Raises:
        RuntimeError: the launcher cannot be built.
    """
    launcher()  # without it there is no place at all, and that must not pass for a missing GPU
    if only_cpu:
        return _cpu("asked for")
    try:
        return _gpu()
    except (RuntimeError, ValueError, ImportError) as error:
        return _cpu(str(error))


def _gpu() -> Place:
    from jitnorm.toolchains import select

    target = first_gpu()
    select(target)
    return Place(target, f"{launcher().device_name(0)} ({target})", CudaMemory(0))


def _cpu(why: str) -> Place:
    return Place(Target("cpu"), "the CPU", HostMemory(), why)
