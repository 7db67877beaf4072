"""Wheels of kernels for tests: built by the release's script, or laid out by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jitnorm.cache import Artifact, Store
from jitnorm.cache.wheels import GROUP
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target

from jitnorm.building import compile_kernel
from jitnorm.kernel_source import kernel_key
from jitnorm.toolchains.cxx import Cxx

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "tests" / "jitnorm" / "wheel" / "small.toml"
TARGETS = ("cpu", "sm_90a", "sm_100f")
TIME_LIMIT = 280.0


def build(out: Path, *options: str, **environment: str) -> str:
    """Run scripts/build_wheels and return its output."""
    command = [str(ROOT / "scripts" / "build_wheels"), "--spec", str(SPEC), "--machine", "x86_64", "-o", str(out)]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def lay_out(site: Path, name: str = "cpu") -> Store:
    """Install an empty wheel of kernels; return its store, to be filled."""
    package = f"jitnorm_kernels_{name}"
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {package}\n")
    (site / package / "cache").mkdir(parents=True)
    return Store(site / package / "cache")


def kernel(config: str, target: str = "cpu", /, **changes: object) -> tuple[str, Artifact]:
    """A kernel built by this machine's compiler, and its key, with changes to its manifest."""
    source = generate(KernelConfig.parse(config), Target(target))
    compiler = Cxx()
    built = compile_kernel(source, compiler)
    return kernel_key(source, compiler), Artifact(built.payload, {**built.manifest, **changes})
