"""Archives: entries in a single file, none of whose contents are trusted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jitnorm.cache import ArchiveError, Artifact, CacheUnusableError, Store, make_key
from jitnorm.cache.archive import export_archive, import_archive
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.signature import SigningKey, TrustedKeys, generate_keys

StartWorker = Callable[..., "subprocess.Popen[str]"]
KEYS = sorted(make_key({"number": str(number)}) for number in range(3))
SOURCE = make_key({"source": "int f();"})


def artifact_of(key: str) -> Artifact:
    return Artifact(key.encode() * 50, {"of": key, "source_key": SOURCE})


@pytest.fixture
def full(store: Store) -> Store:
    for key in KEYS:
        store.publish(key, artifact_of(key), b"{}\n" if key == KEYS[0] else None)
    return store


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "empty")


def write_tar(path: Path, members: list[tuple[tarfile.TarInfo | str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for member, data in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def entry_members(key: str, artifact: Artifact) -> list[tuple[tarfile.TarInfo | str, bytes]]:
    folder = f"v1/{key[:2]}/{key}"
    return [(f"{folder}/manifest.json", encode_manifest(key, artifact)), (f"{folder}/payload", artifact.payload)]


def test_entries_come_back_with_signatures_and_aliases(full: Store, empty: Store, tmp_path: Path) -> None:
    assert export_archive(full, tmp_path / "a.tar") == tuple(KEYS)
    imported = import_archive(empty, tmp_path / "a.tar")
    assert imported.added == tuple(KEYS)
    assert [empty.load(key) for key in KEYS] == [artifact_of(key) for key in KEYS]
    assert [empty.signature(key) for key in KEYS] == [b"{}\n", None, None]
    assert sorted(empty.keys_of(SOURCE)) == KEYS


def test_the_same_entries_give_the_same_bytes(full: Store, empty: Store, tmp_path: Path) -> None:
    export_archive(full, tmp_path / "a.tar")
    import_archive(empty, tmp_path / "a.tar")
    for path in empty.layout.root.rglob("*"):
        os.utime(path, (1, 1))
    export_archive(empty, tmp_path / "b.tar", reversed(KEYS))
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_chosen_entries_are_exported(full: Store, empty: Store, tmp_path: Path) -> None:
    assert export_archive(full, tmp_path / "a.tar", KEYS[1:2]) == tuple(KEYS[1:2])
    assert import_archive(empty, tmp_path / "a.tar").added == tuple(KEYS[1:2])
    again = import_archive(empty, tmp_path / "a.tar")
    assert (again.added, again.present) == ((), tuple(KEYS[1:2]))


def test_an_entry_that_is_missing_or_damaged_is_not_exported_and_leaves_no_file(full: Store, tmp_path: Path) -> None:
    (full.layout.entry(KEYS[1]) / "payload").write_bytes(b"damaged")
    for keys in ([make_key({})], KEYS):
        with pytest.raises(ArchiveError, match="no entry"):
            export_archive(full, tmp_path / "a.tar", keys)
    assert not [path for path in tmp_path.iterdir() if path != full.layout.root]


def test_an_archive_that_cannot_be_written_is_named_as_it_was_given(full: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"No such file or directory: '{tmp_path}/none/some\.tar'"):
        export_archive(full, tmp_path / "none/some.tar")


def test_every_bit_is_verified(empty: Store, tmp_path: Path) -> None:
    """A bit in the padding or in a header's text may change without harm, but an entry is never returned changed."""
    good = write_tar(tmp_path / "good.tar", entry_members(KEYS[0], artifact_of(KEYS[0]))).read_bytes()
    refused = 0
    for position in range(0, 6000, 7):
        changed = bytearray(good)
        changed[position] ^= 1 << position % 8
        (tmp_path / "bad.tar").write_bytes(changed)
        store = Store(tmp_path / f"cache{position}")
        try:
            import_archive(store, tmp_path / "bad.tar")
        except ArchiveError:
            refused += 1
            assert not store.layout.root.exists()
        else:
            assert store.load(KEYS[0]) == artifact_of(KEYS[0])
    assert refused > 500


def test_an_archive_cut_anywhere_adds_nothing_half(full: Store, tmp_path: Path) -> None:
    export_archive(full, tmp_path / "a.tar")
    whole = (tmp_path / "a.tar").read_bytes()
    for number, size in enumerate(range(0, len(whole) - 10240, 300)):
        (tmp_path / "cut.tar").write_bytes(whole[:size])
        store = Store(tmp_path / f"cache{number}")
        with pytest.raises(ArchiveError):
            import_archive(store, tmp_path / "cut.tar")
        assert not store.layout.root.exists()


def special(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


INSIDE = f"v1/{KEYS[0][:2]}/{KEYS[0]}/payload"
MEMBERS: dict[str, tarfile.TarInfo | str] = {
    "absolute": "/etc/evil",
    "above": "../../evil",
    "above within the layout": f"v1/{KEYS[0][:2]}/../../../evil",
    "another file of an entry": f"v1/{KEYS[0][:2]}/{KEYS[0]}/evil",
    "a lock": f"v1/locks/{KEYS[0]}.lock",
    "an alias": f"v1/sources/{SOURCE[:2]}/{SOURCE}",
    "a key in a folder of others": f"v1/zz/{KEYS[0]}/payload",
    "a symbolic link": special(INSIDE, tarfile.SYMTYPE),
    "a hard link": special(INSIDE, tarfile.LNKTYPE),
    "a device": special(INSIDE, tarfile.CHRTYPE),
    "a pipe": special(INSIDE, tarfile.FIFOTYPE),
    "a folder": special(f"v1/{KEYS[0][:2]}", tarfile.DIRTYPE),
}


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())
def test_whatever_is_no_file_of_an_entry_is_refused_by_name(
    empty: Store, tmp_path: Path, member: tarfile.TarInfo | str
) -> None:
    archive = write_tar(tmp_path / "a.tar", [*entry_members(KEYS[1], artifact_of(KEYS[1])), (member, b"")])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArchiveError, match="which is not a file of an entry") as raised:
        import_archive(empty, archive)
    assert repr(member if isinstance(member, str) else member.name) in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_member_of_a_huge_size_is_refused_without_reading_it(empty: Store, tmp_path: Path) -> None:
    info = tarfile.TarInfo(INSIDE)
    info.size = 8**11 - 1  # as large as a plain header can say
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + bytes(1024))
    with pytest.raises(ArchiveError, match="8589934591 bytes; allowed are"):
        import_archive(empty, tmp_path / "a.tar")


def header(kind: bytes, size: int, form: int = tarfile.USTAR_FORMAT) -> bytes:
    info = special(INSIDE, kind, "")
    info.size = size
    return info.tobuf(form)


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The largest growth of Python's memory since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


EXTENDED = {
    "pax": b"x",
    "pax for all": b"g",
    "a long name": b"L",
    "a long link": b"K",
    "sparse": b"S",
    "contiguous": b"7",
    "of old": b"\0",
    "of a vendor": b"Z",
}


@pytest.mark.parametrize("kind", EXTENDED.values(), ids=EXTENDED.keys())
def test_extended_headers_are_refused_before_what_they_announce_is_read(
    empty: Store, tmp_path: Path, kind: bytes, peak: Callable[[], int]
) -> None:
    (tmp_path / "a.tar").write_bytes(header(kind, 1 << 26))
    os.truncate(tmp_path / "a.tar", 1 << 27)
    with pytest.raises(ArchiveError, match="which is not a file of an entry"):
        import_archive(empty, tmp_path / "a.tar")
    assert peak() < 1 << 22


def test_chained_extended_headers_are_refused_at_the_first(empty: Store, tmp_path: Path) -> None:
    long_name = header(b"L", 1) + b"x".ljust(512, b"\0")
    (tmp_path / "a.tar").write_bytes(long_name * 5000 + bytes(1024))
    with pytest.raises(ArchiveError, match="which is not a file of an entry"):
        import_archive(empty, tmp_path / "a.tar")


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, "binary size", "prefix"])
def test_headers_of_other_forms_are_refused(empty: Store, tmp_path: Path, form: object) -> None:
    data = entry_members(KEYS[0], artifact_of(KEYS[0]))[0][1]
    name = f"v1/{KEYS[0][:2]}/{KEYS[0]}/manifest.json"
    info = tarfile.TarInfo(f"{'x' * 90}/{name}" if form == "prefix" else name)
    info.size = 8**11 if form == "binary size" else len(data)
    (tmp_path / "a.tar").write_bytes(
        info.tobuf(tarfile.USTAR_FORMAT if form == "prefix" else tarfile.GNU_FORMAT) + data + bytes(2048)
    )
    with pytest.raises(ArchiveError, match="which is not a file of an entry"):
        import_archive(empty, tmp_path / "a.tar")


def test_a_size_that_the_archive_does_not_have_takes_no_memory(
    empty: Store, tmp_path: Path, peak: Callable[[], int]
) -> None:
    (tmp_path / "a.tar").write_bytes(header(tarfile.REGTYPE, 1 << 30) + bytes(4096))
    with pytest.raises(ArchiveError, match=r"a\.tar was cut off within the payload"):
        import_archive(empty, tmp_path / "a.tar")
    assert peak() < 1 << 22


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_archive_is_none(
    full: Store, empty: Store, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    export_archive(full, tmp_path / "a.tar")
    (tmp_path / "a.tar").write_bytes(compress((tmp_path / "a.tar").read_bytes()))
    with pytest.raises(ArchiveError, match=r"a\.tar is not an archive"):
        import_archive(empty, tmp_path / "a.tar")


# What a killed export leaves.


def test_the_file_of_a_killed_export_is_removed_by_the_next_and_nothing_else_is(
    full: Store, tmp_path: Path, start_worker: StartWorker
) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    worker = start_worker("hang_in_export", root=full.layout.root, path=folder / "a.tar")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "exporting\n"
    (left,) = folder.iterdir()
    export_archive(full, folder / "b.tar")
    assert left.exists()  # its process lives
    worker.kill()
    worker.wait(timeout=10)
    kept = [folder / name for name in (".b.tar.backup.tmp", "x.tmp", f"{left.name}.mine", left.name[1:])]
    for path in kept:
        path.touch()
        os.utime(path, (0, 0))
    export_archive(full, folder / "b.tar")
    assert sorted(folder.iterdir()) == sorted([folder / "b.tar", *kept])


BROKEN: dict[str, Callable[[], list[tuple[tarfile.TarInfo | str, bytes]]]] = {
    "without a payload": lambda: entry_members(KEYS[0], artifact_of(KEYS[0]))[:1],
    "without a manifest": lambda: entry_members(KEYS[0], artifact_of(KEYS[0]))[1:],
    "twice": lambda: entry_members(KEYS[0], artifact_of(KEYS[0])) * 2,
    "out of order": lambda: [member for key in reversed(KEYS) for member in entry_members(key, artifact_of(key))],
    "of another key": lambda: [
        (name.replace(KEYS[0], KEYS[0][:2] + KEYS[1][2:]), data)  # type: ignore[union-attr]
        for name, data in entry_members(KEYS[0], artifact_of(KEYS[0]))
    ],
}


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN.keys())
def test_an_entry_that_is_not_whole_is_refused(
    empty: Store, tmp_path: Path, make: Callable[[], list[tuple[tarfile.TarInfo | str, bytes]]]
) -> None:
    with pytest.raises(ArchiveError, match=r"a\.tar"):
        import_archive(empty, write_tar(tmp_path / "a.tar", make()))
    assert not empty.layout.root.exists()


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, b"\x1f\x8b" + b"x" * 600, bytes(100)], ids=len)
def test_what_is_no_archive_is_refused_by_name(empty: Store, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(ArchiveError, match=r"a\.tar is not an archive"):
        import_archive(empty, tmp_path / "a.tar")


def test_signatures_are_checked_where_keys_are_trusted(store: Store, empty: Store, tmp_path: Path) -> None:
    generate_keys(tmp_path / "key", tmp_path / "key.pem")
    check = TrustedKeys.load([tmp_path / "key.pem"]).check
    good = artifact_of(KEYS[0])
    store.publish(KEYS[0], good, SigningKey.load(tmp_path / "key").sign(encode_manifest(KEYS[0], good)))
    export_archive(store, tmp_path / "signed.tar")
    store.publish(KEYS[1], artifact_of(KEYS[1]))
    export_archive(store, tmp_path / "half.tar")
    with pytest.raises(ArchiveError, match=f"{KEYS[1]} of the archive.*not signed"):
        import_archive(empty, tmp_path / "half.tar", check)
    assert not empty.layout.root.exists()
    assert import_archive(empty, tmp_path / "signed.tar", check).added == (KEYS[0],)


def test_a_cache_that_cannot_be_written_says_so(full: Store, empty: Store, tmp_path: Path) -> None:
    export_archive(full, tmp_path / "a.tar")
    with pytest.raises(CacheUnusableError, match="JITNORM_CACHE_DIR"):
        import_archive(Store(empty.layout.root, writable=False), tmp_path / "a.tar")
