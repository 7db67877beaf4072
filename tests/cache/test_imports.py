from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys
before = set(sys.modules)
import jitnorm.cache
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"asyncio", "filelock", "logging.handlers", "multiprocessing", "shutil", "subprocess", "tempfile"}


def test_importing_the_cache_imports_nothing_heavy_and_nothing_else_of_the_project() -> None:
    modules = json.loads(subprocess.check_output([sys.executable, "-c", SCRIPT], timeout=30))
    assert "jitnorm.cache.store" in modules
    assert HEAVY.isdisjoint(modules)
    assert {
        name for name in modules if name.startswith("jitnorm.") and not name.startswith("jitnorm.cache")
    } == set()
