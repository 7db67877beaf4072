"""What all tests share: one kernel cache and one compiler for the run, the helpers, the option of the golden tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
sys.path.append(str(_HERE / "helpers"))


def _leave_the_path() -> None:
    """Take this folder off the path, where tests/jitnorm would stand for the package, also in processes started."""
    sys.path[:] = [path for path in sys.path if path != str(_HERE)]


_leave_the_path()


# In a new environment and clone, what is imported first has to be compiled. So that workers do not all compile the
# same, each begins at another place.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def pytest_sessionstart() -> None:
    """Have every second worker begin with other packages."""
    if _WORKER % 2:
        for name in ("jax", "sympy"):
            with suppress(ImportError):
                import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker begin each folder with another file; `pytest_collection_modifyitems` sorts the tests."""
    report = yield
    if isinstance(collector, pytest.Directory) and report.result:
        first = len(report.result) * _WORKER // _WORKERS
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do without the garbage collector meanwhile: almost nothing becomes garbage, and it takes a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Undo what pytest does for each test module in this folder, and let the garbage collector pass over all it made.

    Each search through modules and thousands of tests would take 0.3 s.
    """
    _leave_the_path()
    gc.collect()
    gc.freeze()


# What takes longest goes first, else a worker may be left with it at the end; test_cpu_threads.py runs the kernels of
# test_golden.py, and would build them again. For test_deploy_page.py, zig compiles its own C++ library once.
_LONGEST = (
    "test_deploy_page.py",
    "test_golden.py",
    "test_torch_graphs.py",
    "test_cute_on_host.py",
    "test_ray_workers.py",
    "test_documentation.py",
    "test_llama.py",
    "test_sass.py",
    "test_fusion_report.py",
    "test_remote_s3.py",
    "test_peer_suites.py",
    "test_torch_export.py",
    "test_gradients_on_host.py",
    "test_torch_operators.py",
    "test_cuda_on_host.py",
    "test_roofline_model.py",
    "test_package_imports.py",
    "test_sequence.py",
    "test_all_reduce.py",
    "test_warm.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from sweeps import mark_the_rest

    place = {name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(place)), item.path))
    mark_the_rest(items, config.getoption("--turn"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the digests in tests/golden")
    parser.addoption(
        "--turn", type=int, help="which cases of tests/sweeps.txt and tests/long.txt to run, by default those of today"
    )


def pytest_report_header(config: pytest.Config) -> str:
    turn = config.getoption("--turn")
    return f"sweeps: a part of their cases, the same with --turn {turn}; with -m 'not gpu' all (tests/sweeps.txt)"


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a turn and a cache folder; the workers of pytest-xdist inherit them with the environment."""
    from compile_once import compile_once
    from sweeps import turn_of_today

    if config.option.turn is None:
        config.option.turn = int(os.environ.setdefault("JITNORM_TEST_TURN", str(turn_of_today())))
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="jitnorm-tests-")
    os.environ["JITNORM_CACHE_DIR"] = f"{folder}/cache"
    compile_once(Path(folder))
    # For each new cache, inductor would compile what tries vector instructions, 7 s although /proc/cpuinfo names them.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    # JAX would take most of the GPU's memory at its first use, and torch's tests need some too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
