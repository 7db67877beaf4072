"""Reads specifications, TOML files that list kernels to warm; docs/warming.md describes the format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jitnorm.kernels
from jitnorm.kernels.spelling import did_you_mean
from jitnorm.warm.entry import Entry, multiply
from jitnorm.warm.models import entries_of, read_model

_FOLDER = Path(jitnorm.kernels.__file__ or "").parent / "specs"
_TABLES = ("title", "sources", "include", "formats", "row_class", "tensor_parallel", "defaults", "model", "kernel")


def preset_names() -> tuple[str, ...]:
    """The names of the built-in specifications."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def preset_file(name: str) -> Path:
    """The file of a built-in specification; ValueError if there is none."""
    if name not in preset_names():
        meant = did_you_mean(name, preset_names())
        raise ValueError(f"preset: is {name!r}; allowed are {', '.join(preset_names())}{meant}")
    return _FOLDER / f"{name}.toml"


def load_entries(
    path: Path,
    *,
    formats: Sequence[str] | None = None,
    row_class: str | Sequence[str] | None = None,
    tensor_parallel: Sequence[int] | None = None,
) -> list[Entry]:
    """Read the entries of a specification.

    Args:
        path: the file.
        formats: formats that replace those of its models.
        row_class: classes of rows that replace those of its models.
        tensor_parallel: numbers of GPUs that share a model, replacing those in the file.

    Raises:
        ValueError: it cannot be read, or is invalid; the error names the file.
    """
    given = {"formats": formats, "row_class": row_class, "tensor_parallel": tensor_parallel}
    overrides = {name: value for name, value in given.items() if value is not None}
    return list(dict.fromkeys(_load(path, overrides, ())))


def _load(path: Path, overrides: dict[str, Any], including: tuple[Path, ...]) -> list[Entry]:
    if path.resolve() in including:
        raise ValueError(f"spec: {path} includes itself; remove one of its includes")
    table = read_toml(path)
    try:
        unknown = [name for name in table if name not in _TABLES]
        if unknown:
            meant = did_you_mean(unknown[0], _TABLES)
            raise ValueError(f"has {unknown[0]!r}; allowed are {', '.join(_TABLES)}{meant}")
        own = _own_entries(table, overrides)
    except (TypeError, ValueError) as error:
        raise ValueError(f"spec: {path}: {error}") from None
    inherited = {name: table[name] for name in ("formats", "row_class", "tensor_parallel") if name in table} | overrides
    files = [_included(path, name) for name in table.get("include", [])]
    below = (*including, path.resolve())
    return [entry for file in files for entry in _load(file, inherited, below)] + own


def _own_entries(table: dict[str, Any], overrides: dict[str, Any]) -> list[Entry]:
    settings = {name: table[name] for name in ("formats", "row_class", "tensor_parallel") if name in table} | overrides
    found = [entry for model in table.get("model", []) for entry in entries_of(read_model(model), **settings)]
    for kernel in table.get("kernel", []):
        choices = {**table.get("defaults", {}), **kernel}
        if "op" not in choices:
            raise ValueError(f"kernel: {kernel} has no op; name one, such as op = 'rmsnorm'")
        ops = choices.pop("op")
        found += multiply(ops, choices)
    return found


def _included(path: Path, name: str) -> Path:
    return path.parent / name if name.endswith(".toml") else preset_file(name)


def read_toml(path: Path) -> dict[str, Any]:
    """Parse the tables of a file; ValueError if it cannot be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            found: dict[str, Any] = tomllib.load(file)
            return found
    except (OSError, ValueError) as error:
        raise ValueError(f"spec: cannot read {path}: {error}") from None
