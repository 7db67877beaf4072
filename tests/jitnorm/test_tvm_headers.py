"""The identity of TVM-FFI's headers: that of their contents, whether an installer has noted it or they are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tvm_ffi

from jitnorm import tvm_headers
from jitnorm.tvm_headers import digest_of

INSTALLED = Path(tvm_ffi.__file__).parent / "include"


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """A copy of the package's headers with the record of its installation."""
    (record,) = INSTALLED.parent.parent.glob("apache_tvm_ffi-*.dist-info/RECORD")
    folder = tmp_path / record.parent.name
    folder.mkdir()
    shutil.copy(record, folder)
    return Path(shutil.copytree(INSTALLED, tmp_path / "tvm_ffi" / "include"))


def record_of(include: Path) -> Path:
    (record,) = include.parent.parent.glob("*.dist-info/RECORD")
    return record


def test_noted_digests_are_those_of_the_contents(include: Path) -> None:
    noted = digest_of(include)
    record_of(include).unlink()
    assert digest_of(include) == noted == digest_of(INSTALLED)


def test_noted_headers_are_not_read(include: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(folder: Path) -> None:
        raise AssertionError(f"{folder} is read")

    monkeypatch.setattr(tvm_headers, "_read", read)
    assert digest_of(include) == digest_of(INSTALLED)


def test_a_header_of_another_size_changes_the_digest(include: Path) -> None:
    before = digest_of(include)
    with (include / "tvm" / "ffi" / "any.h").open("a") as header:
        header.write("// more\n")
    changed = digest_of(include)
    record_of(include).unlink()
    assert changed == digest_of(include) != before


@pytest.mark.parametrize("lost", ["sha256=", "tvm_ffi/"])
def test_a_record_that_lacks_digests_is_not_relied_on(include: Path, lost: str) -> None:
    record = record_of(include)
    before = digest_of(include)
    record.write_text(record.read_text().replace(lost, ""))
    assert digest_of(include) == before


def test_of_two_records_none_is_relied_on(include: Path) -> None:
    before = digest_of(include)
    other = include.parent.parent / "apache_tvm_ffi-0.0.0.dist-info"
    other.mkdir()
    (other / "RECORD").write_text("tvm_ffi/include/tvm/ffi/any.h,sha256=wrong,1\n")
    assert digest_of(include) == before


def test_a_missing_header_changes_the_digest(include: Path) -> None:
    before = digest_of(include)
    (include / "tvm" / "ffi" / "any.h").unlink()
    assert digest_of(include) != before
