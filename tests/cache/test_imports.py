from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys
before = set(sys.modules)
import jitnorm.cache
print(json.dumps(sorted(set(sys.modules) - before)))
"""
PUBLISH = """
import json, sys
from pathlib import Path
from jitnorm.cache import Artifact, Store
store = Store(Path(sys.argv[1]))
before = set(sys.modules)
store.publish(sys.argv[2] * 64, Artifact(b"x", {}))
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"asyncio", "filelock", "logging.handlers", "multiprocessing", "shutil", "subprocess", "tempfile"}


def test_importing_the_cache_imports_nothing_heavy() -> None:
    modules = json.loads(subprocess.check_output([sys.executable, "-c", SCRIPT], timeout=30))
    assert "jitnorm.cache.store" in modules
    assert HEAVY.isdisjoint(modules)


def test_publishing_within_the_budget_imports_only_the_running_total(tmp_path: Path) -> None:
    """Otherwise, importing would take longer than publishing."""
    first, second = (
        json.loads(subprocess.check_output([sys.executable, "-c", PUBLISH, str(tmp_path), digit], timeout=30))
        for digit in "12"
    )
    assert "jitnorm.cache.measure" in first, "a new cache is measured"
    assert [name for name in second if name.startswith("jitnorm")] == ["jitnorm.cache.ledger", "jitnorm.cache.room"]
    assert HEAVY.isdisjoint(second)
