"""Importing jitnorm is cheap and drags nothing in; torch may come before, after or never."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from python_process import TIME_LIMIT, run_python

ROOT = Path(__file__).parents[2]

FRAMEWORKS = "{'torch', 'jax', 'jaxlib', 'cupy', 'numpy', 'tvm_ffi', 'ml_dtypes'}"
HEAVY = "{'filelock', 'subprocess', 'cuda', 'importlib.metadata'}"

IMPORT_ALONE = f"""
import sys, time
before = set(sys.modules)
start = time.process_time()  # the clock would also count other tests, which keep the machine busy
import jitnorm
seconds = time.process_time() - start
print(seconds, *sorted(({FRAMEWORKS} | {HEAVY}) & (set(sys.modules) - before)))
"""

FIRST_NUMPY_CALL = """
import sys
import numpy as np, jitnorm
x, w = np.ones((2, 64), np.float16), np.ones(64, np.float16)
assert jitnorm.rmsnorm(x, w, eps=0.0).sum() == 128
print(*sorted({"torch", "jax", "cupy", "cuda.bindings"} & set(sys.modules)))
"""

TORCH_AFTERWARDS = (
    FIRST_NUMPY_CALL
    + """
import torch
t, tw = torch.ones(2, 64).half(), torch.ones(64).half()
assert jitnorm.rmsnorm(t, tw, eps=0.0).sum() == 128
codes, scales = jitnorm.rmsnorm_fp4quant(t, tw)
print(codes.dtype)
"""
)

TORCH_FIRST = """
import torch, jitnorm
t = torch.ones(2, 64).half()
print(jitnorm.rmsnorm(t, torch.ones(64).half(), eps=0.0).sum().item())
"""

TORCH_MEANWHILE = """
import importlib, threading
import numpy as np, jitnorm
barrier, failures = threading.Barrier(2), []
def use():
    try:
        barrier.wait(60)
        jitnorm.rmsnorm(np.ones((2, 64), np.float16), np.ones(64, np.float16))
    except BaseException as error:
        failures.append(error)
def load():
    try:
        barrier.wait(60)
        importlib.import_module("torch")
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=target) for target in (use, load)]
[thread.start() for thread in threads]
[thread.join(100) for thread in threads]
print(failures)
"""


def test_the_import_loads_no_framework_and_nothing_heavy(tmp_path: Path) -> None:
    loaded = run_python(IMPORT_ALONE, cwd=tmp_path).split()[1:]
    assert loaded == []


def test_the_checkout_can_be_imported_from_its_own_folder_whatever_is_installed() -> None:
    """As after `pip install .`, by an interpreter that is started there; without site, no editable install helps."""
    packages = Path(np.__file__).parents[1]
    program = "import jitnorm, jitnorm.cache, jitnorm.kernels; print(jitnorm.kernels.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    assert done.stdout.strip() == str(ROOT / "kernels" / "__init__.py"), done.stderr


def test_the_import_takes_less_than_a_fifth_of_a_second(tmp_path: Path) -> None:
    """The best of several."""
    best = min(float(run_python(IMPORT_ALONE, cwd=tmp_path).split()[0]) for _ in range(4))
    assert best < 0.2


def test_the_first_numpy_call_loads_no_other_framework(tmp_path: Path) -> None:
    assert run_python(FIRST_NUMPY_CALL, cwd=tmp_path).strip() == ""


def test_torch_may_be_loaded_after_the_first_call(tmp_path: Path) -> None:
    assert run_python(TORCH_AFTERWARDS, cwd=tmp_path).strip() == "torch.float4_e2m1fn_x2"


def test_torch_may_be_loaded_before(tmp_path: Path) -> None:
    assert float(run_python(TORCH_FIRST, cwd=tmp_path)) == 128


def test_another_thread_may_load_torch_during_the_first_call(tmp_path: Path) -> None:
    assert run_python(TORCH_MEANWHILE, cwd=tmp_path).strip() == "[]"


@pytest.mark.parametrize("name", ["rmsnorm", "rmsnorm_fp4quant", "get_kernel", "KernelConfig", "Target", "NVFP4"])
def test_the_package_exports(name: str) -> None:
    import jitnorm

    assert name in jitnorm.__all__
    assert hasattr(jitnorm, name)
