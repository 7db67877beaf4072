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


def test_importing_the_cache_imports_nothing_heavy() -> None:
    modules = json.loads(subprocess.check_output([sys.executable, "-c", SCRIPT], timeout=30))
    assert "jitnorm.cache.store" in modules
    assert HEAVY.isdisjoint(modules)
