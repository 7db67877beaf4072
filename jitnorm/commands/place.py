"""The device that a command runs on, the first GPU or else the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from jitnorm.dispatch import cuda_target
from jitnorm.kernels.target import Target
from jitnorm.launcher import launcher
from jitnorm.memory import CudaMemory, HostMemory


@dataclass(frozen=True)
class Place:
    """A device to run on.

    Attributes:
        target: the target to build kernels for.
        name: the device's name, for people to read.
        memory: copies arrays to the device and back.
        why_cpu: why the device is not a GPU; empty if it is.
    """

    target: Target
    name: str
    memory: HostMemory | CudaMemory
    why_cpu: str = ""


def first_gpu() -> Target:
    """The target of ``cuda:0``.

    Raises:
        RuntimeError: there is no driver or no GPU, or the launcher, which detects them, cannot be built.
        ValueError: the GPU is not supported.
    """
    if launcher().device_count() == 0:
        raise RuntimeError("the CUDA driver sees no GPU")
    return cuda_target(0)


def target_or_default(name: str | None) -> tuple[Target, str]:
    """The target of a name; by default that of the first GPU, or else the CPU and the reason.

    Raises:
        ValueError: the name is unknown.
    """
    if name is not None:
        return Target(name), ""
    try:
        return first_gpu(), ""
    except (RuntimeError, ValueError) as error:
        return Target("cpu"), str(error)


def find_place(*, only_cpu: bool = False) -> Place:
    """The first GPU if it is usable, else the CPU.

    Args:
        only_cpu: do not look for a GPU.

    Raises:
        RuntimeError: the launcher cannot be built.
    """
    launcher()  # the CPU needs it, too, so a missing launcher must not look like a missing GPU
    if only_cpu:
        return _cpu("--cpu is given")
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
