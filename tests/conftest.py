"""What all tests share: one kernel cache for the run, the helpers, the option of the golden tests."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
sys.path.append(str(_HERE / "helpers"))


def _leave_the_path() -> None:
    """Take this folder off the path, where tests/jitnorm would stand for the package, also in processes started."""
    sys.path[:] = [path for path in sys.path if path != str(_HERE)]


_leave_the_path()


def pytest_collection_finish() -> None:
    """Undo what pytest does for each test module in this folder."""
    _leave_the_path()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the digests in tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a cache folder of its own; the workers of pytest-xdist inherit it with the environment."""
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="jitnorm-tests-")
    os.environ["JITNORM_CACHE_DIR"] = folder
    # JAX would take most of the GPU's memory at its first use, and torch's tests need some too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
