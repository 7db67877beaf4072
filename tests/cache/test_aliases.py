"""An alias leads from a source to the keys of what was built from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, Store, make_key
from jitnorm.cache.aliases import SOURCE_KEY, decode_alias, encode_alias

SOURCE = make_key({"source": "int f();"})
KEYS = tuple(make_key({"compiler": str(i)}) for i in range(70))


def built_by(compiler: str, source: str = SOURCE) -> Artifact:
    return Artifact(compiler.encode(), {SOURCE_KEY: source, "backend": compiler})


def test_every_artifact_of_a_source_is_found_by_it(store: Store) -> None:
    assert store.keys_of(SOURCE) == ()
    store.publish(KEYS[0], built_by("nvcc"))
    store.publish(KEYS[1], built_by("nvrtc"))
    store.publish(KEYS[1], built_by("nvrtc"))
    assert store.keys_of(SOURCE) == KEYS[:2]
    assert Cache(store).load_source(SOURCE) == built_by("nvrtc")
    assert Cache(store).load_source(SOURCE, lambda found: found.manifest["backend"] == "nvcc") == built_by("nvcc")


def test_an_artifact_without_a_source_key_has_no_alias(store: Store, key: str, artifact: Artifact) -> None:
    store.publish(key, artifact)
    assert not store.layout.sources.exists()


def test_an_alias_to_an_artifact_of_another_source_is_not_believed(store: Store) -> None:
    store.publish(KEYS[0], built_by("nvcc", source=make_key({"source": "other"})))
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    alias.write_bytes(encode_alias(KEYS[:1]))
    assert store.keys_of(SOURCE) == KEYS[:1]
    assert Cache(store).load_source(SOURCE) is None


def test_an_alias_that_leads_nowhere_is_passed_over(store: Store) -> None:
    store.publish(KEYS[0], built_by("nvcc"))
    alias = store.layout.alias(SOURCE)
    alias.write_bytes(encode_alias(KEYS[:3]))
    assert Cache(store).load_source(SOURCE) == built_by("nvcc")


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 100, b"../../etc/passwd\n", b"\n\n", KEYS[0][:-1].encode()])
def test_garbage_in_an_alias_file_is_no_key(store: Store, garbage: bytes) -> None:
    alias = store.layout.alias(SOURCE)
    alias.parent.mkdir(parents=True)
    alias.write_bytes(garbage)
    assert store.keys_of(SOURCE) == ()
    store.publish(KEYS[0], built_by("nvcc"))
    assert store.keys_of(SOURCE) == KEYS[:1]


def test_of_writers_at_once_none_is_forgotten(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.publish(key, built_by(key)), KEYS[:32]))
    assert sorted(store.keys_of(SOURCE)) == sorted(KEYS[:32])


def test_an_alias_file_that_is_none_is_passed_over(store: Store, tmp_path: Path) -> None:
    alias = store.layout.alias(SOURCE)
    alias.mkdir(parents=True)
    assert store.keys_of(SOURCE) == ()
    store.publish(KEYS[0], built_by("nvcc"))
    assert store.load(KEYS[0]) == built_by("nvcc")


def test_an_alias_file_keeps_the_newest_keys_and_stays_small() -> None:
    assert decode_alias(encode_alias(KEYS)) == KEYS[-64:]
    assert decode_alias(encode_alias(KEYS[:1]) * 2) == KEYS[:1]


def test_a_source_key_must_have_the_form_of_a_key(store: Store) -> None:
    store.publish(KEYS[0], Artifact(b"", {SOURCE_KEY: "../../x"}))
    assert not store.layout.sources.exists()
    with pytest.raises(ValueError, match="cache key"):
        store.keys_of("../../x")
