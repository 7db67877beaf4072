"""Measures the startup of a process: import, cold builds, the first call with a warm cache.

    python scripts/startup.py

Each figure is the best of several fresh processes, with NumPy input on the CPU target, and with torch input on the GPU
if there is one. A cold build is the first one in its process, of RMSNorm to NVFP4 at hidden size 4096: it includes
importing the bindings and loading the compiler, whose identity is cached.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

IMPORT = """
import time
start = time.perf_counter()
import jitnorm
print((time.perf_counter() - start) * 1e3)
"""

FIRST_CALL = """
import time
import {framework}
from jitnorm.ffi import tvm_ffi
import jitnorm
x, w = {x}, {w}
start = time.perf_counter()
tvm_ffi()
imported = time.perf_counter()
jitnorm.rmsnorm_fp4quant(x, w)
{synchronize}
print((time.perf_counter() - imported) * 1e3)
"""

NUMPY = {
    "framework": "numpy",
    "x": "numpy.ones((4, 4096), numpy.float16)",
    "w": "numpy.ones(4096, numpy.float16)",
    "synchronize": "",
}
TORCH = {
    "framework": "torch",
    "x": "torch.ones(4, 4096, dtype=torch.float16, device='cuda')",
    "w": "torch.ones(4096, dtype=torch.float16, device='cuda')",
    "synchronize": "torch.cuda.synchronize()",
}

BUILD = """
import time
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import Target
from jitnorm.store import memo_folder, user_store
from jitnorm.toolchains import select
target = Target("{target}")
toolchain = select(target, "{backend}", memo_dir=memo_folder(user_store()))
source = generate(KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3"), target).text
toolchain.identity()
start = time.perf_counter()
toolchain.compile(source, target)
print((time.perf_counter() - start) * 1e3)
"""


def best_of(program: str, runs: int = 5) -> str:
    results = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1][:100]
        results.append(float(done.stdout.split()[-1]))
    return f"{min(results):8.1f} ms  (first {results[0]:.1f})"


def has_gpu() -> bool:
    probe = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JITNORM_CACHE_DIR"] = cache
        print(f"import jitnorm                      {best_of(IMPORT)}")
        for target, backend in (("sm_90a", "nvrtc"), ("sm_90a", "nvcc"), ("cpu", "cxx")):
            time = best_of(BUILD.format(target=target, backend=backend), 3)
            print(f"build for {target:6} with {backend:5}          {time}")
        print(f"first call, warm cache, NumPy       {best_of(FIRST_CALL.format(**NUMPY))}")
        if has_gpu():
            print(f"first call, warm cache, torch CUDA  {best_of(FIRST_CALL.format(**TORCH))}")


if __name__ == "__main__":
    main()
