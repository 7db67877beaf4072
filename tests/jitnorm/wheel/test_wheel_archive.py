"""Wheels are packed as the specification has it, and the same content gives the same bytes."""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
import zipfile
from io import BytesIO, StringIO
from pathlib import Path

import pytest

from jitnorm.wheel.archive import WheelName, pack

NAME = WheelName("some_kernels", "1.0", "py3-none-any")
FILES = {"some_kernels/__init__.py": b"", "some_kernels/cache/b": b"code", "some_kernels/cache/a": bytes(1000)}
METADATA = {"METADATA": b"Metadata-Version: 2.4\nName: some-kernels\nVersion: 1.0\n"}


def test_the_order_of_the_files_does_not_matter() -> None:
    backwards = dict(reversed(FILES.items()))
    assert list(backwards) != list(FILES)
    assert pack(NAME, FILES, METADATA) == pack(NAME, backwards, METADATA)


def test_any_change_of_the_content_changes_it() -> None:
    assert pack(NAME, FILES, METADATA) != pack(NAME, {**FILES, "some_kernels/cache/b": b"cod3"}, METADATA)


def test_the_record_names_every_file_with_its_digest() -> None:
    archive = zipfile.ZipFile(BytesIO(pack(NAME, FILES, METADATA)))
    record = f"{NAME.info}/RECORD"
    rows = list(csv.reader(StringIO(archive.read(record).decode())))
    assert [row[0] for row in rows] == archive.namelist()
    assert rows[-1] == [record, "", ""]
    for path, digest, size in rows[:-1]:
        data = archive.read(path)
        expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert (digest, int(size)) == (f"sha256={expected}", len(data))


def test_files_have_fixed_times_and_modes() -> None:
    for info in zipfile.ZipFile(BytesIO(pack(NAME, FILES, METADATA))).infolist():
        assert info.date_time == (1980, 1, 1, 0, 0, 0)
        assert info.external_attr >> 16 == 0o100644


def test_the_time_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    moments = {info.date_time for info in zipfile.ZipFile(BytesIO(pack(NAME, FILES, METADATA))).infolist()}
    assert moments == {(2023, 11, 14, 22, 13, 20)}


@pytest.mark.parametrize("text", ["now", "-1", "1.5"])
def test_a_time_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(ValueError, match=f"SOURCE_DATE_EPOCH: is '{text}'"):
        pack(NAME, FILES, METADATA)


@pytest.mark.parametrize("bad", ["", "a-b", "../a", "a/b", "a b"])
def test_a_name_that_is_no_part_of_a_file_name_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot be a part of its name"):
        pack(NAME._replace(distribution=bad), FILES, METADATA)
    with pytest.raises(ValueError, match="cannot be a part of its name"):
        pack(NAME._replace(version=bad), FILES, METADATA)


def test_pip_installs_it(tmp_path: Path) -> None:
    (tmp_path / NAME.file).write_bytes(pack(NAME, FILES, METADATA))
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*command, "--target", tmp_path / "site", tmp_path / NAME.file], check=True, timeout=60)
    for path, data in FILES.items():
        assert (tmp_path / "site" / path).read_bytes() == data
