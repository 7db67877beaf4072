"""`jitnorm cache push` and `pull`: between the user's cache and a remote one."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_entries import CPU, ENTRIES, LAUNCHER, SM90, SM100, Answer, Invoke, fill
from jitnorm.cache import Store, open_cache

pytest.importorskip("fsspec", reason="remote caches need jitnorm[remote]")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder behind the remote cache that the environment names."""
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path / 'bucket'}")
    return tmp_path / "bucket"


def test_what_is_pushed_is_there_and_not_pushed_again(store: Store, bucket: Path, answer: Answer) -> None:
    first, second = answer("cache", "push"), answer("cache", "push")
    assert (set(first["moved"]), first["present"], first["refused"]) == (set(ENTRIES), [], {})
    assert first["bytes"] == sum(len(artifact.payload) for artifact in ENTRIES.values())
    assert (second["moved"], set(second["present"])) == ([], set(ENTRIES))
    assert {key: Store(bucket).load(key) for key in ENTRIES} == ENTRIES
    assert set(answer("cache", "push", "--replace")["moved"]) == set(ENTRIES)


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["--all"], set(ENTRIES)),
        (["--arch", "sm_90a"], {SM90, LAUNCHER}),
        (["--kind", "kernel"], {SM90, SM100, CPU}),
        ([SM90], {SM90}),
        ([SM90[:12], "--kind", "kernel"], {SM90}),
    ],
)
def test_what_is_named_is_pulled(
    folder: Path, bucket: Path, answer: Answer, options: list[str], keys: set[str]
) -> None:
    fill(Store(bucket))
    done = answer("cache", "pull", *options)
    assert (set(done["moved"]), done["refused"]) == (keys, {})
    assert {entry.key for entry in Store(folder).entries()} == keys


def test_a_damaged_entry_is_refused_by_name_and_the_rest_arrives(
    folder: Path, bucket: Path, answer: Answer, invoke: Invoke
) -> None:
    fill(Store(bucket))
    (bucket / "v1" / SM90[:2] / SM90 / "payload").write_bytes(b"x" * 2047 + b"!")
    done = answer("cache", "pull", "--all", exit_code=1)
    assert (set(done["moved"]), done["refused"].keys()) == (set(ENTRIES) - {SM90}, {SM90})
    shown = invoke("cache", "pull", SM90)
    assert shown.exit_code == 1
    assert shown.stdout.startswith(f"refused {SM90[:12]}: payload does not match its digest\n")


def test_the_option_counts_more_than_the_environment(
    store: Store, bucket: Path, tmp_path: Path, answer: Answer
) -> None:
    place = tmp_path / "third"
    assert answer("cache", "push", SM90, "--to", f"file://{place}")["tier"] == f"remote file://{place}"
    assert Store(place).load(SM90) == ENTRIES[SM90]
    assert answer("cache", "pull", "--all", "--from", f"file://{place}")["present"] == [SM90]
    assert not bucket.exists()


def test_pushing_signs_nothing_and_refuses_what_nobody_trusted_has_signed(
    store: Store, bucket: Path, tmp_path: Path, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a key would vouch for imported entries, or for copies from a remote cache without signatures."""
    pytest.importorskip("cryptography", reason="signatures need jitnorm[sign]")
    for name in ("mine", "theirs"):
        invoke("cache", "keygen", tmp_path / f"{name}.pem")
    invoke("cache", "sign", SM90, "--key", tmp_path / "mine.pem")
    invoke("cache", "sign", SM100, "--key", tmp_path / "theirs.pem")
    monkeypatch.setenv("JITNORM_SIGNING_KEY", str(tmp_path / "mine.pem"))
    done = answer("cache", "push", exit_code=1)
    assert (done["moved"], set(done["refused"])) == ([SM90], {SM100, CPU, LAUNCHER})
    assert store.signature(CPU) is None
    monkeypatch.setenv("JITNORM_TRUSTED_KEYS", str(tmp_path / "theirs.pub.pem"))
    done = answer("cache", "push", exit_code=1)
    assert (done["moved"], done["present"], set(done["refused"])) == ([SM100], [SM90], {CPU, LAUNCHER})
    monkeypatch.delenv("JITNORM_SIGNING_KEY")
    assert set(answer("cache", "push", exit_code=1)["refused"]) == {SM90, CPU, LAUNCHER}
    invoke("cache", "sign", CPU, LAUNCHER, SM90, "--key", tmp_path / "theirs.pem")
    assert answer("cache", "push", "--replace")["refused"] == {}


def test_what_is_built_with_the_signing_key_is_pushed(
    folder: Path, bucket: Path, tmp_path: Path, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="signatures need jitnorm[sign]")
    invoke("cache", "keygen", tmp_path / "mine.pem")
    monkeypatch.setenv("JITNORM_SIGNING_KEY", str(tmp_path / "mine.pem"))
    monkeypatch.delenv("JITNORM_REMOTE_CACHE")
    open_cache().load_or_build(CPU, lambda: ENTRIES[CPU])
    assert answer("cache", "push", "--to", bucket.as_uri())["moved"] == [CPU]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["push"], "error: no remote cache is configured: set JITNORM_REMOTE_CACHE to its URL, or pass --to"),
        (
            ["pull", "--all"],
            "error: no remote cache is configured: set JITNORM_REMOTE_CACHE to its URL, or pass --from",
        ),
        (["pull"], "error: pull: name what to copy"),
        (["pull", "--all", SM90], "error: pull: name what to copy"),
    ],
)
def test_without_a_remote_cache_or_without_names_usage_is_wrong(
    store: Store, invoke: Invoke, arguments: list[str], message: str
) -> None:
    result = invoke("cache", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_remote_cache_that_does_not_answer_is_a_failure(store: Store, invoke: Invoke) -> None:
    result = invoke("cache", "pull", "--all", "--from", "http://127.0.0.1:1/kernels")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: remote http://127.0.0.1:1/kernels failed")
