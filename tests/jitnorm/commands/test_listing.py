"""`jitnorm cache ls`: what is stored, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Store, make_key
from jitnorm.kernels.config import KernelConfig

from jitnorm.commands import listing

CONFIG = KernelConfig.parse("rmsnorm:hidden_size=4096,input=float16,quant=e2m1/32/ue8m0")
KEY = make_key({"source": "a"})
MANIFEST = {"kind": "kernel", "config": str(CONFIG), "target": "sm_90a", "backend": "nvrtc"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of one kernel and one launcher."""
    store = Store(tmp_path)
    store.publish(KEY, Artifact(b"x" * 2048, MANIFEST))
    store.publish(make_key({"source": "b"}), Artifact(b"y" * 10, {"kind": "launcher"}))
    monkeypatch.setattr(listing, "user_store", lambda: store)
    return store


def test_a_kernel_is_a_line_with_key_kind_target_backend_size_age_and_config(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listing.list_cache(as_json=False)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(KEY[:12]))
    key, kind, target, backend, size, unit, age, age_unit, config = line.split()
    assert (key, kind, target, backend) == (KEY[:12], "kernel", "sm_90a", "nvrtc")
    assert (size, unit, age_unit) == ("2.0", "KiB", "s")
    assert 0 <= int(age) < 60
    assert KernelConfig.parse(config) == CONFIG, "a listed configuration can be given to `jitnorm source`"


def test_the_last_line_counts_entries_and_payload_bytes(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    listing.list_cache(as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"2 entries, 2.0 KiB, in {store.layout.root}"


def test_json_holds_whole_keys_and_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    listing.list_cache(as_json=True)
    entries = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries[KEY]["manifest"] == MANIFEST
    assert entries[KEY]["payload_size"] == 2048
