"""Prefixes of keys, and filters."""

from __future__ import annotations

import pytest
from cache_entries import CPU, ENTRIES, LAUNCHER, SM90
from jitnorm.cache import CacheError, Entry

from jitnorm.commands.selection import Filter, find_key, select

KNOWN = ["ab" + "0" * 62, "abc" + "0" * 61, "f" * 64]
FOUND = [Entry(key, len(artifact.payload), 0.0, artifact.manifest) for key, artifact in ENTRIES.items()]


@pytest.mark.parametrize(("text", "index"), [("ab0", 0), ("abc", 1), ("f", 2), (KNOWN[0], 0)])
def test_a_beginning_that_no_other_key_shares_is_enough(text: str, index: int) -> None:
    assert find_key(KNOWN, text) == KNOWN[index]


def test_a_key_in_several_tiers_is_one_key() -> None:
    assert find_key([KNOWN[2], KNOWN[2]], "ff") == KNOWN[2]


def test_a_shared_beginning_is_wrong_usage_and_names_the_keys() -> None:
    with pytest.raises(ValueError, match=r"'ab' begins 2 keys \(ab0000000000, abc000000000\)"):
        find_key(KNOWN, "ab")


def test_no_more_than_a_few_keys_are_named() -> None:
    with pytest.raises(ValueError, match=r"begins 9 keys \(.*, \.\.\.\)"):
        find_key([f"a{digit}" + "0" * 62 for digit in range(9)], "a")


@pytest.mark.parametrize("text", ["", "xyz", "AB", "../ab", "ab "])
def test_what_is_no_beginning_of_a_key_is_wrong_usage(text: str) -> None:
    with pytest.raises(ValueError, match="lower-case hexadecimal digits"):
        find_key(KNOWN, text)


def test_a_beginning_of_no_key_is_a_failure() -> None:
    with pytest.raises(CacheError, match="no entry has a key that begins with '0'"):
        find_key(KNOWN, "0")


def test_a_filter_by_target_is_about_kernels_and_launchers_may_stay() -> None:
    assert [entry.key for entry in select(FOUND, Filter(targets=("cpu",)))] == [CPU]
    assert [entry.key for entry in select(FOUND, Filter(targets=("cpu",), launchers_stay=True))] == [CPU, LAUNCHER]
    assert [entry.key for entry in select(FOUND, Filter("kernel", ("cpu",), launchers_stay=True))] == [CPU]


def test_keys_and_filters_hold_together() -> None:
    assert [entry.key for entry in select(FOUND, Filter("kernel", (), (SM90[:10], LAUNCHER)))] == [SM90]
