"""Text from strangers in manifests is shown harmlessly: it can neither control a view nor make it fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cache_entries import Invoke
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jitnorm.cache import Artifact, Store, make_key
from jitnorm.cache.space import clear

KEY = make_key({"by": "a stranger"})
FIELDS = ("kind", "config", "target", "backend", "toolchain", "flags", "recipe", "source_key", "requires")
EVIL = "\x1b]0;owned\x07\x9b2J\r\n\u202e[red]\ud800"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=4,
)
MANIFESTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(st.characters()), VALUES)


def shown_by(invoke: Invoke, *arguments: str) -> list[str]:
    """The lines that a command prints, which must all be printable."""
    result = invoke(*arguments)
    assert result.exit_code in (0, 1)
    lines = (result.stdout + result.stderr).split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    return lines


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MANIFESTS)
@example(dict.fromkeys((*FIELDS, EVIL), EVIL))
@example({name: [EVIL, {EVIL: EVIL}, 1] for name in FIELDS})
def test_any_manifest_can_be_looked_at(folder: Path, invoke: Invoke, manifest: dict[str, Any]) -> None:
    store = Store(folder)
    clear(store, force=True)
    store.publish(KEY, Artifact(b"code", manifest))
    listed = shown_by(invoke, "cache", "ls")
    assert [line.startswith(KEY[:12]) for line in listed] == [False, True, False, False]
    shown_by(invoke, "cache", "info", KEY)


@pytest.mark.parametrize("value", [EVIL, [EVIL, 1], {EVIL: EVIL}, 1, None])
def test_what_comes_near_is_shown_alike(folder: Path, invoke: Invoke, value: object) -> None:
    manifest = {**dict.fromkeys(FIELDS, value), "kind": "kernel", "target": "cpu", "backend": "cxx"}
    Store(folder).publish(KEY, Artifact(b"code", manifest))
    assert KEY[:12] in " ".join(shown_by(invoke, "cache", "why", "rmsnorm:hidden_size=64", "--target", "cpu"))


def test_markup_is_no_markup(folder: Path, invoke: Invoke) -> None:
    manifest = {"kind": "[red]kernel[/]", "target": "[/nothing]", "[bold]name": "[link=x]y[/link]"}
    Store(folder).publish(KEY, Artifact(b"code", manifest))
    line = shown_by(invoke, "cache", "ls")[1]
    assert "[red]kernel[/]  [/nothing]" in line
    assert "[bold]name  [link=x]y[/link]" in " ".join(shown_by(invoke, "cache", "info", KEY))


def test_a_remote_cache_is_listed_alike(
    folder: Path, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "bucket").publish(KEY, Artifact(b"code", {"config": EVIL, EVIL: EVIL}))
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", (tmp_path / "bucket").as_uri())
    shown = "\\x1b]0;owned\\x07\\x9b2J\\r\\n\\u202e[red]\\ud800"
    assert shown in shown_by(invoke, "cache", "ls", "--tier", "remote")[1]
    assert shown in " ".join(shown_by(invoke, "cache", "info", KEY))
