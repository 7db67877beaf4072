"""Headers match the safetensors library's, and incomplete files are rejected."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from jitnorm.checkpoint.stored import StoredTensor, arranged, read_header

TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(["F32", "BF16", "U8", "F8_E4M3", "I64"]), st.lists(st.integers(0, 3), max_size=3)),
    max_size=5,
)


@given(TENSORS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_library_reads_what_is_written(tmp_path: Path, named: dict[str, tuple[str, list[int]]]) -> None:
    tensors = [StoredTensor(name, dtype, tuple(shape)) for name, (dtype, shape) in named.items()]
    begin, placed = arranged(tensors, {"format": "pt"})
    path = tmp_path / "file.safetensors"
    path.write_bytes(begin + bytes(sum(tensor.size for tensor in tensors)))
    with safe_open(path, "np") as file:
        assert set(file.keys()) == set(named)
        assert file.metadata() == {"format": "pt"}
        for name, (dtype, shape) in named.items():
            found = file.get_slice(name)
            assert (found.get_dtype(), found.get_shape()) == (dtype, shape)
    assert sorted(read_header(path)[0], key=lambda tensor: tensor.name) == sorted(placed, key=lambda each: each.name)
    assert all(tensor.begin % 4 == 0 for tensor in placed if tensor.dtype == "F32")


def file_of(header: object, data: int = 0) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def tensor(begin: int, end: int, shape: tuple[int, ...], dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "header would have 0 of 0 bytes"),
        (b"\xff" * 16, "header would have"),
        (file_of({})[:-1], "header would have"),
        (file_of([]), "not a whole"),
        (file_of({"a": tensor(0, 4, (4,))}, 3), "tensors end at byte"),
        (file_of({"a": tensor(0, 4, (4,))}, 5), "tensors end at byte"),
        (file_of({"a": tensor(0, 4, (5,))}, 4), r"a of shape \(5,\) has 4 bytes"),
        (file_of({"a": tensor(0, 4, (-2, -2))}, 4), r"a of shape \(-2, -2\)"),
        (file_of({"a": tensor(1, 5, (4,))}, 5), "a begins at byte"),
        (file_of({"a": tensor(0, 4, (4,)), "b": tensor(2, 6, (4,))}, 6), "b begins at byte"),
        (file_of({"a": tensor(0, 4, (4,), "X7")}, 4), "not a whole"),
        (file_of({"a": {}}, 4), "not a whole"),
    ],
)
def test_what_is_no_whole_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why) as caught:
        read_header(path)
    assert str(path) in str(caught.value)


def test_a_size_is_that_of_the_elements() -> None:
    assert StoredTensor("a", "BF16", (2, 3)).size == 2 * prod((2, 3))
    assert StoredTensor("a", "F4", (2, 4)).size == 4
    assert StoredTensor("a", "F32", ()).size == 4
