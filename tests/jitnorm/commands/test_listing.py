"""`jitnorm cache ls`: the contents of the cache, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_entries import CPU, ENTRIES, LAUNCHER, SM90, SM100, Answer, Invoke, fill
from jitnorm.cache import Store
from jitnorm.kernels.config import KernelConfig


def test_a_kernel_is_a_line_with_all_that_there_is_to_say(store: Store, invoke: Invoke) -> None:
    line = next(line for line in invoke("cache", "ls").stdout.splitlines() if line.startswith(SM90[:12]))
    key, tier, kind, target, backend, size, unit, age, age_unit, used, used_unit, config = line.split()
    assert (key, tier, kind, target, backend) == (SM90[:12], "user", "kernel", "sm_90a", "nvrtc")
    assert (size, unit, age_unit, used_unit) == ("2.0", "KiB", "s", "s")
    assert 0 <= int(age) < 60
    assert 0 <= int(used) < 60
    wanted = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16")
    assert KernelConfig.parse(config) == wanted, "a listed configuration can be given to `jitnorm source`"


def test_the_last_line_counts_entries_and_payload_bytes(store: Store, invoke: Invoke) -> None:
    assert invoke("cache", "ls").stdout.splitlines()[-1] == f"4 entries, 7.0 KiB, in user {store.layout.root}"


def test_an_empty_cache_is_listed_as_such(folder: Path, invoke: Invoke, answer: Answer) -> None:
    assert invoke("cache", "ls").stdout == f"0 entries, 0 B, in user {folder}\n"
    assert answer("cache", "ls") == []


def test_a_pipe_gets_no_folded_lines_no_spaces_at_their_ends_and_no_colors(store: Store, invoke: Invoke) -> None:
    lines = invoke("cache", "ls").stdout.splitlines()
    assert len(lines) == 1 + len(ENTRIES) + 1
    assert [line for line in lines if line != line.rstrip() or "\x1b" in line] == []


def test_json_holds_whole_keys_and_manifests(store: Store, answer: Answer) -> None:
    entries = {entry["key"]: entry for entry in answer("cache", "ls")}
    assert entries.keys() == ENTRIES.keys()
    found = entries[SM90]
    assert found["manifest"] == ENTRIES[SM90].manifest
    assert (found["payload_size"], found["tier"]) == (2048, f"user {store.layout.root}")
    assert found["used"] >= found["modified"] - 1


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["--kind", "launcher"], {LAUNCHER}),
        (["--target", "sm_90a"], {SM90}),
        (["--arch", "sm_90a,cpu"], {SM90, CPU}),
        (["--target", "sm_100a", "--target", "cpu"], {SM100, CPU}),
        (["--tier", "user"], set(ENTRIES)),
        (["--tier", "wheel"], set()),
    ],
)
def test_filters_keep_what_they_name(store: Store, answer: Answer, options: list[str], keys: set[str]) -> None:
    assert {entry["key"] for entry in answer("cache", "ls", *options)} == keys


@pytest.mark.parametrize(
    ("field", "keys"), [("size", [LAUNCHER, CPU, SM90, SM100]), ("key", sorted(ENTRIES)), ("target", None)]
)
def test_entries_are_sorted_as_asked(store: Store, answer: Answer, field: str, keys: list[str] | None) -> None:
    found = answer("cache", "ls", "--sort", field)
    if keys is None:
        assert [each["manifest"].get("target", "") for each in found] == ["", "cpu", "sm_100a", "sm_90a"]
    else:
        assert [each["key"] for each in found] == keys


def test_every_folder_is_listed_and_can_be_named(
    store: Store, tmp_path: Path, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(tmp_path / "other")
    fill(other)
    monkeypatch.setenv("JITNORM_READONLY_CACHE", str(other.layout.root))
    assert len(answer("cache", "ls")) == 2 * len(ENTRIES)
    found = answer("cache", "ls", "--tier", "read-only")
    assert {entry["tier"] for entry in found} == {f"read-only {other.layout.root}"}
    assert len(found) == len(ENTRIES)
    assert {entry["used"] for entry in found} == {0.0}, "nobody notes uses in a folder that is only read"
    assert answer("cache", "ls", "--tier", f"read-only {other.layout.root}") == found
    assert invoke("cache", "ls").stdout.splitlines()[-1].endswith(f"in user {store.layout.root}")


def test_a_remote_tier_is_listed_on_demand(
    store: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(Store(tmp_path / "bucket"))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path / 'bucket'}")
    assert {entry["tier"] for entry in answer("cache", "ls")} == {store.name}
    found = {entry["key"]: entry for entry in answer("cache", "ls", "--tier", "remote", "--kind", "kernel")}
    assert found.keys() == {SM90, SM100, CPU}
    assert found[SM90]["manifest"] == ENTRIES[SM90].manifest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tier", "floppy"], "error: tier: 'floppy' is not known; use one of wheel, read-only, user, remote"),
        (["--kind", "cat"], "error: kind: 'cat' is not known; use one of kernel, launcher"),
        (["--target", "sm_1"], "error: target: 'sm_1' is not known"),
        (["--sort", "mood"], "error: sort: 'mood' is not known; use one of age, used"),
    ],
)
def test_what_is_not_known_is_wrong_usage(store: Store, invoke: Invoke, options: list[str], message: str) -> None:
    result = invoke("cache", "ls", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1
