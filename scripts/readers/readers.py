"""The readers: the inputs that each starts with, and what must hold for any input."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from jitnorm.cache import ArchiveError, Artifact, Store, make_key
from jitnorm.cache.aliases import source_key_of
from jitnorm.cache.archive import export_archive, import_archive
from jitnorm.cache.artifact import decode_artifact, encode_manifest
from jitnorm.cache.errors import CorruptEntryError, RemoteError, UntrustedEntryError
from jitnorm.cache.listing import list_entries
from jitnorm.cache.revocation import (
    _PURPOSE,
    RevocationList,
    Revocations,
    _canonical,
    decode_revocations,
    encode_revocations,
)
from jitnorm.cache.signature import SigningKey, TrustedKeys
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from recipe_fuzzer import KERNELS, calls, check

from jitnorm.kernel_source import recipe_text
from jitnorm.requirements import is_usable, unmet


def _artifacts() -> dict[str, Artifact]:
    """Kernels as they are published, but for their code, by key."""
    found = {}
    for config, language, targets in KERNELS[:4]:
        for target in targets:
            manifest: dict[str, Any] = {
                "kind": "kernel",
                "config": config,
                "target": target,
                "backend": "cxx",
                "toolchain": "gcc version 12.2.0, x86_64-linux-gnu",
                "flags": ["-std=c++17", "-O3"],
                "recipe": recipe_text(KernelConfig.parse(config), Target(target), language),
                "source_key": make_key({"source": config}),
                "requires": {"machine": "x86_64", "glibc": "2.17", "cpu": "x86-64-v3"},
            }
            found[make_key({"config": config, "target": target})] = Artifact(b"code" * 50, manifest)
    return dict(sorted(found.items()))


ARTIFACTS = _artifacts()
KEY = next(iter(ARTIFACTS))


class Reader(ABC):
    """A reader.

    Args:
        folder: an empty one, for its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def corpus(self) -> list[bytes]:
        """Inputs that are valid."""

    @abstractmethod
    def read(self, data: bytes) -> None:
        """Read an input; any error that this raises is a fault."""


class Manifests(Reader):
    """Manifest files: nothing is read but what was published, and whatever a manifest says breaks nothing."""

    def corpus(self) -> list[bytes]:
        return [encode_manifest(KEY, artifact) for artifact in ARTIFACTS.values()]

    def read(self, data: bytes) -> None:
        published = ARTIFACTS[KEY]
        try:
            found = decode_artifact(KEY, data, published.payload)
        except CorruptEntryError:
            self._read_as_published(data, published.payload)
        else:
            assert encode_manifest(KEY, found) == data, "read from bytes that nobody published"

    def _read_as_published(self, data: bytes, payload: bytes) -> None:
        try:
            artifact = Artifact(payload, json.loads(data)["manifest"])
            raw = encode_manifest(KEY, artifact)
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        found = decode_artifact(KEY, raw, payload)
        assert found == artifact
        source_key_of(found)
        assert is_usable(found) == (not unmet(found))


class Archives(Reader):
    """Archives: all entries are as they were exported, or nothing is added."""

    def corpus(self) -> list[bytes]:
        store, path = Store(self.folder / "full"), self.folder / "archive"
        for key, artifact in ARTIFACTS.items():
            store.publish(key, artifact, b"{}" if key == KEY else None)
        found = []
        for keys in ([], [KEY], list(ARTIFACTS)[:2]):
            export_archive(store, path, keys)
            found.append(path.read_bytes())
        return found

    def read(self, data: bytes) -> None:
        path, store = self.folder / "archive", Store(self.folder / "imported")
        path.write_bytes(data)
        try:
            added = import_archive(store, path).added
        except ArchiveError:
            added = ()
        assert [each.key for each in store.entries()] == list(added), "a part was added"
        for key in added:
            assert store.load(key) == ARTIFACTS[key]
        shutil.rmtree(store.layout.root, ignore_errors=True)


class Indexes(Reader):
    """The index: listings have the entries that there are, whatever it says of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = Store(folder / "cache")
        for key, artifact in list(ARTIFACTS.items())[:3]:
            self._store.publish(key, artifact)

    def corpus(self) -> list[bytes]:
        list(list_entries(self._store))
        lines = self._store.layout.index.read_bytes()
        return [lines, *lines.splitlines(keepends=True)]

    def read(self, data: bytes) -> None:
        self._store.layout.index.write_bytes(data)
        assert [entry.key for entry, _ in list_entries(self._store)] == list(ARTIFACTS)[:3]


class Signatures(Reader):
    """Signature files: nothing is accepted but what a trusted key signed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._key, self._trusted = _key()
        self._manifest = encode_manifest(KEY, ARTIFACTS[KEY])

    def corpus(self) -> list[bytes]:
        return [self._key.sign(self._manifest), _key(days=2)[0].sign(self._manifest)]

    def read(self, data: bytes) -> None:
        try:
            self._trusted.check(self._manifest, data)
        except UntrustedEntryError:
            return
        content = json.loads(data)
        assert content["key"] == self._key.key_id
        assert content.get("expires", time.time() + 1) > time.time()


class Revocation(Reader):
    """Revocation lists: nothing is accepted but what the key signed, and a signed list breaks nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._key, self._trusted = _key()

    def corpus(self) -> list[bytes]:
        lists = (Revocations(1, 1 << 31), Revocations(2, 1 << 31, (self._key.key_id,), (KEY,)))
        return [encode_revocations(each, self._key) for each in lists]

    def read(self, data: bytes) -> None:
        for each in filter(None, (data, self._signed(data))):
            with contextlib.suppress(UntrustedEntryError, RemoteError):
                decode_revocations(each, self._trusted)
                in_force = RevocationList(Store(self.folder / "cache"), self._trusted)
                in_force.refresh(lambda: each, "a tier")  # noqa: B023
                in_force.check(encode_manifest(KEY, ARTIFACTS[KEY]), self._key.sign(b""))
        shutil.rmtree(self.folder / "cache", ignore_errors=True)

    def _signed(self, data: bytes) -> bytes | None:
        """The list in an input, signed, as its author might by mistake."""
        try:
            found = json.loads(data)["list"]
            signature = self._key.sign(_PURPOSE + _canonical(found))
            return _canonical({"list": found, "signature": json.loads(signature)})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


class Recipes(Reader):
    """Launch recipes: refused, or calls are checked by them. What crashes ends the process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._recipes = [
            recipe_text(KernelConfig.parse(c), Target(t), language) for c, language, on in KERNELS for t in on
        ]
        self._calls = list(calls(json.loads(self._recipes[0])))

    def corpus(self) -> list[bytes]:
        return [recipe.encode() for recipe in self._recipes]

    def read(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        check(text, self._calls)


def _key(days: float | None = None) -> tuple[SigningKey, TrustedKeys]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))), days)
    return key, TrustedKeys({key.key_id: key.public})


READERS: dict[str, type[Reader]] = {
    "manifests": Manifests,
    "archives": Archives,
    "indexes": Indexes,
    "signatures": Signatures,
    "revocations": Revocation,
    "recipes": Recipes,
}
