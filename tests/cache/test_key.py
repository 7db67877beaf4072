from __future__ import annotations

import hashlib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jitnorm.cache import make_key
from jitnorm.cache.key import is_key

labels = st.text(st.characters(), min_size=1, max_size=8)  # lone surrogates included, as in paths
values = st.text(max_size=8) | st.binary(max_size=8)
field_maps = st.dictionaries(labels, values, max_size=5)


def as_bytes(fields: dict[str, str | bytes]) -> dict[str, bytes]:
    return {k: v if isinstance(v, bytes) else v.encode() for k, v in fields.items()}


@settings(deadline=None)
@given(field_maps)
def test_a_key_is_64_lower_case_hexadecimal_digits(fields: dict[str, str | bytes]) -> None:
    key = make_key(fields)
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")
    assert is_key(key)


@settings(deadline=None)
@given(field_maps)
def test_the_order_of_the_fields_does_not_matter(fields: dict[str, str | bytes]) -> None:
    assert make_key(dict(reversed(fields.items()))) == make_key(fields)


@settings(deadline=None)
@given(field_maps)
def test_text_counts_as_its_utf8_bytes(fields: dict[str, str | bytes]) -> None:
    assert make_key(as_bytes(fields)) == make_key(fields)


@settings(deadline=None)
@given(field_maps, field_maps)
def test_different_fields_give_different_keys(one: dict[str, str | bytes], other: dict[str, str | bytes]) -> None:
    assume(as_bytes(one) != as_bytes(other))
    assert make_key(one) != make_key(other)


@settings(deadline=None)
@given(st.text(min_size=2, max_size=10), st.data())
def test_moving_bytes_between_fields_changes_the_key(text: str, data: st.DataObject) -> None:
    cut, other = (data.draw(st.integers(1, len(text) - 1)) for _ in range(2))
    keys = {make_key({text[:cut]: text[cut:]}), make_key({text[:other]: text[other:]}), make_key({text: ""})}
    assert len(keys) == (2 if cut == other else 3)


def test_a_field_named_schema_does_not_replace_the_schema_field() -> None:
    assert make_key({"schema": "jitnorm-cache-key-1"}) != make_key({})


def test_the_hashed_bytes_are_those_documented() -> None:
    def part(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    parts = (b"schema", b"jitnorm-cache-key-1", b"a", b"\xff", b"b", "ü".encode())
    assert make_key({"b": "ü", "a": b"\xff"}) == hashlib.sha256(b"".join(map(part, parts))).hexdigest()


def test_an_empty_label_is_refused() -> None:
    with pytest.raises(ValueError, match="empty label"):
        make_key({"": "value"})


@pytest.mark.parametrize("value", [None, 3, bytearray(b"x"), ["x"]])
def test_a_value_that_is_neither_text_nor_bytes_is_refused_by_its_label(value: object) -> None:
    with pytest.raises(TypeError, match=r"'flags'.*str and bytes"):
        make_key({"flags": value})  # type: ignore[dict-item]
