"""Signatures and the keys that make them."""

from __future__ import annotations

import os
from pathlib import Path

from jitnorm.cache.opening import KEYS_VARIABLE, SIGNING_VARIABLE
from jitnorm.cache.signature import SigningKey, generate_keys, sign_entries
from jitnorm.commands.console import print_json
from jitnorm.commands.selection import Filter, select_some
from jitnorm.commands.units import SHORT_KEY
from jitnorm.store import user_store


def sign_some(wanted: Filter, path: Path | None, *, as_json: bool) -> bool:
    """Sign entries of the user's cache, and print which; return whether none of them is damaged.

    Raises:
        ValueError: no key is named, or a key of an entry is not one.
        CacheError: the private key cannot be read, or nothing is meant.
        OSError: a signature cannot be written.
    """
    named = path or os.environ.get(SIGNING_VARIABLE)
    if not named:
        raise ValueError(f"no private key is named: give one with --key, or set {SIGNING_VARIABLE}")
    store, key = user_store(), SigningKey.load(os.path.expanduser(named))
    keys = select_some(store, wanted)
    signed = sign_entries(store, key, keys)
    damaged = sorted(set(keys) - set(signed))
    if as_json:
        print_json({"key_id": key.key_id, "signed": signed, "damaged": damaged})
    else:
        for each in damaged:
            print(f"not signed, damaged: {each[:SHORT_KEY]}")
        print(f"{len(signed)} entries of {store.layout.root} signed by the key {key.key_id}")
    return not damaged


def make_keys(private: Path, public: Path | None, *, as_json: bool) -> None:
    """Write a new pair of keys, and print where.

    Raises:
        OSError: one of the files exists or cannot be written.
        CacheError: cryptography is not installed.
    """
    public = public or private.with_suffix(".pub.pem")
    key_id = generate_keys(private, public)
    if as_json:
        print_json({"key_id": key_id, "private": private, "public": public})
    else:
        print(f"private key {private}: keep it secret; {SIGNING_VARIABLE} names it where kernels are built")
        print(f"public key  {public}: {KEYS_VARIABLE} names it where they are used")
        print(f"id of both  {key_id}")
