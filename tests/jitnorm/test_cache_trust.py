"""The code of another user never runs, whatever the cache folder was open to."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store
from jitnorm.cache.artifact import encode_manifest
from python_process import run_python

from jitnorm.launcher import load_or_build_launcher
from jitnorm.store import user_cache, user_store
from jitnorm.toolchains.cxx import Cxx

STRANGER = 65534
CALL = """
import numpy as np, jitnorm
from jitnorm.cache import CacheTrustError
try:
    print(jitnorm.rmsnorm(np.ones((2, 48), np.float16), np.ones(48, np.float16)).sum())
except CacheTrustError as error:
    print("refused:", error)
"""
EVIL = '#include <cstdio>\n__attribute__((constructor)) void run() {{ fclose(fopen("{mark}", "w")); }}\n'


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can reach and write to."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def stolen_key(store: Store) -> tuple[str, Artifact]:
    ((key, found),) = [(entry.key, store.load(entry.key)) for entry in store.entries() if "config" in entry.manifest]
    assert found is not None
    return key, found


def library(folder: Path, mark: Path) -> bytes:
    """A shared library that leaves a mark as soon as it is loaded."""
    (folder / "evil.cc").write_text(EVIL.format(mark=mark))
    command = [str(Cxx().location), "-shared", "-fPIC", "-o", "evil.so", "evil.cc"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return (folder / "evil.so").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")
@pytest.mark.parametrize("attack", ["cat {new} > {old}", "rm {old} && cp {new} {old}"], ids=["overwrite", "replace"])
def test_a_kernel_that_another_user_put_into_an_open_cache_never_runs(place: Path, attack: str) -> None:
    root, mark = place / "cache", place / "mark"
    load_or_build_launcher(user_cache())
    for entry in [entry for entry in user_store().entries() if entry.manifest.get("kind") == "launcher"]:
        shutil.copytree(user_store().layout.entry(entry.key), Store(root).layout.entry(entry.key))
    for folder in [root, *root.rglob("*")]:
        folder.chmod(0o700 if folder.is_dir() else 0o600)
    environment = {"JITNORM_CACHE_DIR": str(root)}
    expected = run_python(CALL, cwd=place, **environment)
    assert "refused" not in expected

    key, good = stolen_key(Store(root))
    evil = Artifact(library(place, mark), good.manifest)
    (place / "payload").write_bytes(evil.payload)
    (place / "manifest.json").write_bytes(encode_manifest(key, evil))
    subprocess.run(["chmod", "-R", "777", str(root)], check=True, timeout=30)
    for name in ("payload", "manifest.json"):
        command = attack.format(new=place / name, old=Store(root).layout.entry(key) / name)
        subprocess.run(command, shell=True, user=STRANGER, group=STRANGER, check=True, timeout=30)

    for folder in ("", "v1", "v1/tmp", "v1/locks", "v1/uses", "v1/quarantine"):
        (root / folder).chmod(0o700)
    assert f"run chmod -R go-w {root}; if not, delete it" in run_python(CALL, cwd=place, **environment)
    assert not mark.exists()
    shutil.rmtree(root)
    assert run_python(CALL, cwd=place, **environment) == expected
    assert not mark.exists()
