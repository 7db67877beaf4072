"""The doctor's report on the cache: every tier with its state, whatever is wrong with the others."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from cache_entries import ENTRIES, Answer, Invoke, fill, manifest_of
from jitnorm.cache import Artifact, Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from wheels import lay_out

import jitnorm
from jitnorm.commands import doctor_cache
from jitnorm.kernel_source import kernel_source_key, source_for
from jitnorm.launcher import LauncherParts
from jitnorm.misses import record_miss
from jitnorm.store import user_store

PAYLOADS = sum(len(artifact.payload) for artifact in ENTRIES.values())


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not build the launcher: it takes seconds, and these tests are not about it."""

    def missing() -> None:
        raise RuntimeError("not built for this test")

    monkeypatch.setattr("jitnorm.commands.doctor.launcher", missing)
    monkeypatch.setattr(doctor_cache, "MEASURING_SECONDS", 60.0)  # a busy machine must not make it an estimate


def states(answer: Answer) -> dict[str, Any]:
    """The states of the tiers in the report, by name."""
    return {tier["name"]: tier for tier in answer("doctor", exit_code=1)["tiers"]}


def test_the_users_cache_is_a_tier_with_its_entries(store: Store, answer: Answer) -> None:
    assert states(answer) == {
        store.name: {
            "name": store.name,
            "is_reachable": True,
            "is_writable": True,
            "entries": len(ENTRIES),
            "payload_bytes": PAYLOADS,
            "problem": "",
            "is_estimate": False,
        }
    }


def test_a_cache_that_takes_too_long_to_measure_is_estimated_and_said_to_be(
    store: Store, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(store.layout.shards()) > 1
    monkeypatch.setattr(doctor_cache, "MEASURING_SECONDS", 0.0)
    report = answer("doctor", exit_code=1)
    assert report["cache"]["is_estimate"]
    assert report["tiers"][0]["is_estimate"]
    assert report["cache"]["entries"] > 0
    lines = invoke("doctor").stdout.splitlines()
    assert [line.split()[0] for line in lines if "about " in line] == ["cache", "tier"]


def test_a_cache_that_is_measured_in_time_is_no_estimate(store: Store, answer: Answer) -> None:
    report = answer("doctor", exit_code=1)
    assert not report["cache"]["is_estimate"]
    assert not report["tiers"][0]["is_estimate"]


def test_a_default_folder_that_cannot_be_made_is_told_and_all_else_examined(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This happens where the home folder is read-only."""
    (tmp_path / "file").touch()
    monkeypatch.delenv("JITNORM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    report = answer("doctor", exit_code=1)
    assert report["cache"]["is_writable"] is False
    assert report["cache"]["entries"] == 0
    assert {tier["name"] for tier in report["tiers"]}


def test_the_folder_comes_with_what_it_holds_its_budget_and_its_locks(
    store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_CACHE_MAX_BYTES", "1M")
    cache = answer("doctor", exit_code=1)["cache"]
    assert (cache["path"], cache["trust"], cache["problem"]) == (str(store.layout.root), "owner only", "")
    assert (cache["entries"], cache["payload_bytes"], cache["budget_bytes"]) == (len(ENTRIES), PAYLOADS, 1 << 20)
    assert cache["total_bytes"] > PAYLOADS
    assert cache["has_locks"] is True


def test_a_file_system_without_locks_is_noticed_and_nothing_is_left_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    before = sorted(store.layout.root.rglob("*"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert doctor_cache.cache_state(store, "").has_locks is False
    assert sorted(store.layout.root.rglob("*")) == before


def test_tiers_that_fail_say_why_and_hide_no_others(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, open_to_all, absent = (tmp_path / name for name in ("good", "open", "absent"))
    fill(Store(good))
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("JITNORM_READONLY_CACHE", f"{absent}:{open_to_all}:{good}")
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", "no-url")
    found = states(answer)
    assert list(found) == [*(f"read-only {path}" for path in (absent, open_to_all, good)), store.name, "remote"]
    assert "remove it from JITNORM_READONLY_CACHE" in found[f"read-only {absent}"]["problem"]
    assert f"chmod -R go-w {open_to_all}" in found[f"read-only {open_to_all}"]["problem"]
    assert "which is not a URL" in found["remote"]["problem"]
    assert not any(found[name]["is_reachable"] for name in found if found[name]["problem"])
    assert found[f"read-only {good}"]["entries"] == len(ENTRIES)
    assert (found[f"read-only {good}"]["is_writable"], found[store.name]["is_writable"]) == (False, True)


def test_a_remote_tier_is_asked_what_it_has(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(Store(tmp_path / "bucket"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path / 'bucket'}")
    monkeypatch.setenv("JITNORM_REMOTE_MODE", "readwrite")
    tier = states(answer)[f"remote file://{tmp_path / 'bucket'}"]
    assert (tier["is_reachable"], tier["is_writable"], tier["entries"]) == (True, True, len(ENTRIES))


def test_a_remote_tier_that_nobody_answers_is_not_reachable(
    store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", "http://127.0.0.1:1/kernels")
    tier = states(answer)["remote http://127.0.0.1:1/kernels"]
    assert not tier["is_reachable"]
    assert tier["problem"].startswith("remote http://127.0.0.1:1/kernels failed")


def test_a_tier_that_hangs_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(doctor_cache, "SECONDS_PER_TIER", 0.05)
    monkeypatch.setattr(doctor_cache, "_folder_state", lambda store: released.wait(60))
    try:
        (state,) = doctor_cache.tier_states(store)
    finally:
        released.set()
    assert (state.is_reachable, state.problem) == (False, "no answer within 0.05 s")


@pytest.fixture
def own_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The contents of jitnorm's wheel: a launcher for the installed TVM-FFI, and one for another."""
    folder = tmp_path / "prebuilt"
    monkeypatch.setattr("jitnorm.store.PREBUILT", str(folder))
    wanted = LauncherParts.collect().source_key(os.uname().machine)
    for key, source_key in (("1" * 64, wanted), ("2" * 64, "0" * 64)):
        Store(folder).publish(key, Artifact(b"code", {"kind": "launcher", "source_key": source_key}))
    return Store(folder)


def test_what_jitnorms_own_wheel_brings_is_a_tier_before_all_others(
    store: Store, own_wheel: Store, answer: Answer
) -> None:
    report = answer("doctor", exit_code=1)
    assert [tier["name"] for tier in report["tiers"]] == ["wheel jitnorm", store.name]
    assert (report["tiers"][0]["entries"], report["tiers"][0]["is_writable"]) == (2, False)
    assert report["wheels"] == [
        {
            "name": "jitnorm",
            "version": jitnorm.__version__,
            "path": str(own_wheel.layout.root),
            "targets": [],
            "kernels": 0,
            "serving": 0,
            "refused": {},
            "launchers": 2,
            "serving_launchers": 1,
            "payload_bytes": 8,
            "problem": "",
        }
    ]
    assert report["schema"] == 1


def test_a_wheel_without_a_launcher_for_what_is_installed_needs_attention(own_wheel: Store, invoke: Invoke) -> None:
    shutil.rmtree(own_wheel.layout.entry("1" * 64))
    title = f"wheel     no  jitnorm {jitnorm.__version__}: its launcher is for another"
    assert any(line.startswith(title) for line in invoke("doctor").stdout.splitlines())


@pytest.mark.parametrize("backend", ["nvrtc", "cute"])
def test_a_wheel_of_kernels_comes_with_what_it_serves_and_why_not_all(
    backend: str, site: Path, answer: Answer, invoke: Invoke
) -> None:
    target, config = Target("sm_100f"), KernelConfig("rmsnorm", 64)
    fitting = {**manifest_of(str(target)), "config": str(config), "backend": backend}
    fitting["source_key"] = kernel_source_key(source_for(config, target, backend))
    of_another_version = {**fitting, "source_key": "0" * 64}
    wheel = lay_out(site, "sm100f")
    wheel.publish("1" * 64, Artifact(b"code", fitting))
    (found,) = answer("doctor", exit_code=1)["wheels"]
    assert (found["name"], found["version"], found["targets"]) == ("jitnorm-kernels-sm100f", "1.0", ["sm_100f"])
    assert (found["kernels"], found["serving"], found["refused"], found["payload_bytes"]) == (1, 1, {}, 4)
    assert "ok  jitnorm-kernels-sm100f 1.0: 1 of 1 kernels for sm_100f serve here; 4 B" in invoke("doctor").stdout

    wheel.publish("2" * 64, Artifact(b"code", of_another_version))
    wheel.publish("3" * 64, Artifact(b"code", fitting))
    (wheel.layout.entry("3" * 64) / "manifest.json").chmod(0o600)
    (wheel.layout.entry("3" * 64) / "manifest.json").write_text("{")
    (found,) = answer("doctor", exit_code=1)["wheels"]
    assert (found["kernels"], found["serving"]) == (2, 1)
    assert found["refused"] == {"generated by another version of jitnorm": 1, "damaged": 1}
    shown = " ".join(invoke("doctor").stdout.split())
    assert "no jitnorm-kernels-sm100f 1.0: 1 of 2 kernels for sm_100f serve here" in shown
    assert "1 refused: damaged; 1 refused: generated by another version of jitnorm" in shown


def test_a_wheel_that_others_can_write_to_is_listed_with_the_reason(site: Path, answer: Answer) -> None:
    lay_out(site).layout.root.chmod(0o777)
    (found,) = answer("doctor", exit_code=1)["wheels"]
    assert (found["name"], found["kernels"]) == ("jitnorm-kernels-cpu", 0)
    assert "others can write to it" in found["problem"]


def test_a_wheel_that_hangs_is_given_up(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(site)
    released = threading.Event()
    monkeypatch.setattr(doctor_cache, "SECONDS_PER_TIER", 0.05)
    monkeypatch.setattr(doctor_cache, "describe_wheel", lambda wheel: released.wait(60))
    try:
        (found,) = doctor_cache.wheel_states()
    finally:
        released.set()
    assert (found.name, found.version, found.problem) == ("jitnorm-kernels-cpu", "1.0", "no answer within 0.05 s")


def test_the_keys_of_signatures_are_named_by_their_ids(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="signatures need jitnorm[sign]")
    key_id = answer("cache", "keygen", tmp_path / "fleet.pem")["key_id"]
    assert answer("doctor", exit_code=1)["signing"] == {"trusted": [], "signs_with": "", "problem": ""}
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "fleet.pub.pem"))
    monkeypatch.setenv("JITNORM_SIGNING_KEY", str(tmp_path / "fleet.pem"))
    assert answer("doctor", exit_code=1)["signing"] == {"trusted": [key_id], "signs_with": key_id, "problem": ""}
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "nowhere"))
    signing = answer("doctor", exit_code=1)["signing"]
    assert signing["signs_with"] == key_id
    assert "cannot read the public key" in signing["problem"]


def test_the_mode_and_the_record_of_misses(store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer("doctor", exit_code=1)["misses"]["mode"] == "auto"
    monkeypatch.setenv("JITNORM_JIT", "deny")
    record_miss(user_store(), "rmsnorm:hidden_size=64", "cpu")
    misses = answer("doctor", exit_code=1)["misses"]
    assert (misses["mode"], misses["record"], misses["problem"]) == ("deny", str(store.layout.misses), "")
    assert misses["record_bytes"] == store.layout.misses.stat().st_size > 0


def test_people_read_the_same(store: Store, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(tmp_path / "absent"))
    monkeypatch.setenv("JITNORM_JIT", "never")
    lines = invoke("doctor").stdout.splitlines()
    assert any(line.startswith(f"tier      ok  {store.name}: read-write, 4 entries") for line in lines)
    assert any(line.startswith(f"tier      no  read-only {tmp_path / 'absent'}: ") for line in lines)
    assert any(line.startswith("variable  no  JITNORM_JIT=never: JITNORM_JIT: is 'never'") for line in lines)
    assert any(line.startswith("misses    no  ") for line in lines)
