"""Describes the machine and the libraries of a benchmark."""

from __future__ import annotations

import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version

import jitnorm
from jitnorm.bench.peers import PACKAGES
from jitnorm.bench.results import Setup
from jitnorm.kernels.spelling import did_you_mean

DEVICES = ("cuda", "cpu")


def device_or_default(name: str | None) -> str:
    """Select a device by name; without one, a GPU if torch sees any, else the CPU.

    Raises:
        ValueError: the name is not known, or torch sees no GPU.
        RuntimeError: torch is missing.
    """
    try:
        import torch
    except ImportError:
        raise RuntimeError('measuring needs torch, which is not installed: pip install "jitnorm[torch]"') from None
    if name not in (None, *DEVICES):
        raise ValueError(f"device: is {name!r}; allowed are {', '.join(DEVICES)}{did_you_mean(name, DEVICES)}")
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ValueError(
            f"device: is 'cuda', but torch {torch.__version__} sees no GPU; use cpu, or install a torch for CUDA and "
            "NVIDIA's driver"
        )
    return name or ("cuda" if has_gpu else "cpu")


def setup_of(device: str, by: list[str]) -> Setup:
    """Collect the facts of a run that starts now.

    Args:
        device: ``cuda`` or ``cpu``.
        by: the measured implementations.
    """
    import torch

    versions = {"jitnorm": jitnorm.__version__, "torch": torch.__version__}
    if device == "cuda":
        versions["cuda"] = torch.version.cuda
    versions |= {name: _version(PACKAGES[name]) for name in by if name in PACKAGES}
    today = date.today().isoformat()
    if device == "cuda":
        return Setup(today, torch.cuda.get_device_name(), _driver(), versions)
    return Setup(today, _processor(), "", versions)


def seed() -> None:
    """Give every run the same input."""
    import torch

    torch.manual_seed(0)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # installed under another name
        return "unknown"


def _driver() -> str:
    """The driver's version, which torch does not provide."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.splitlines()[0].strip()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
