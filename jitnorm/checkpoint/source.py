"""The checkpoint to quantize: its shards, its index, its configuration and its other files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitnorm.checkpoint.stored import StoredTensor, read_header
from jitnorm.hub import hint_of_hub

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
CONFIG = "config.json"
# Weights in other forms, which would stay unquantized.
_LEFT_OUT = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")


@dataclass(frozen=True)
class Source:
    """A checkpoint in Hugging Face's form.

    Attributes:
        folder: its folder.
        shards: the tensors of each of its files.
        metadata: the metadata of each of these.
        config: the content of ``config.json``.
        index: the content of the index; None if there is one file without an index.
        others: paths of the files to copy, within the folder.
    """

    folder: Path
    shards: dict[str, list[StoredTensor]]
    metadata: dict[str, dict[str, str]]
    config: dict[str, Any]
    index: dict[str, Any] | None
    others: list[Path]


def open_source(folder: Path) -> Source:
    """Open a checkpoint, and check that it is whole.

    Raises:
        ValueError: it is not a checkpoint, lacks a shard, does not match its index, or is already quantized.
    """
    if not folder.is_dir():
        raise ValueError(f"in: {folder} is no folder; name that of a checkpoint{hint_of_hub(str(folder))}")
    config = _read_object(folder / CONFIG)
    if "quantization_config" in config or (folder / "hf_quant_config.json").exists():
        raise ValueError(f"in: {folder} is quantized already; name the checkpoint that it was made from")
    index = _read_object(folder / INDEX) if (folder / INDEX).exists() else None
    names = [SINGLE] if index is None else _named_by(index, folder)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"in: {folder} lacks {', '.join(missing[:5])}{_more(missing)}; download the checkpoint again")
    headers = {name: read_header(folder / name) for name in names}
    shards = {name: tensors for name, (tensors, _) in headers.items()}
    if index is not None:
        _compare(index["weight_map"], shards)
    metadata = {name: found for name, (_, found) in headers.items()}
    return Source(folder, shards, metadata, config, index, sorted(_others(folder)))


def _read_object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"in: cannot read {file}: {error}; name a whole checkpoint") from None
    if not isinstance(found, dict):
        raise ValueError(f"in: {file} is not a JSON object; download the checkpoint again")
    return found


def _named_by(index: dict[str, Any], folder: Path) -> list[str]:
    """The names of an index's files, which must be in its folder."""
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(each, str) for each in places.values()):
        lacking = "has no weight_map, which names the file of each tensor"
        raise ValueError(f"in: {folder / INDEX} {lacking}; download the checkpoint again")
    names = sorted(set(places.values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            wrong = f"names {name!r}, which is not a safetensors file beside it"
            raise ValueError(f"in: {folder / INDEX} {wrong}; download the checkpoint again")
    return names


def _compare(places: dict[str, str], shards: dict[str, list[StoredTensor]]) -> None:
    """Compare an index with the contents of its files."""
    held = [(tensor.name, file) for file, tensors in shards.items() for tensor in tensors]
    found = dict(held)
    wrong = [name for name, file in held if places.get(name) != file] + [name for name in places if name not in found]
    if wrong:
        name = wrong[0]
        where = [file for each, file in held if each == name]
        raise ValueError(
            f"in: {INDEX} has {name} in {places.get(name, 'no file')}, but it is in {' and '.join(where) or 'none'}"
            f"{_more(wrong, 1)}; download the checkpoint again"
        )


def _more(items: list[str], shown: int = 5) -> str:
    return f", and {len(items) - shown} more" if len(items) > shown else ""


def _others(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        within = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in within.parts[:-1])
        if path.is_file() and not is_hidden and not path.name.endswith(_LEFT_OUT) and str(within) != CONFIG:
            yield within
