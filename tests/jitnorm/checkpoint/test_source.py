"""Incomplete checkpoints are rejected, with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import SHARDS, write_checkpoint

from jitnorm.checkpoint.source import INDEX, open_source


def change_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def move(folder: Path) -> None:
    change_index(folder, lambda places: places.update({"lm_head.weight": SHARDS[1]}))


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / SHARDS[1]).unlink(), f"lacks {SHARDS[1]}"),
    (lambda folder: (folder / SHARDS[1]).write_bytes((folder / SHARDS[1]).read_bytes()[:-1]), "not a whole"),
    (lambda folder: (folder / INDEX).write_text("{"), "cannot read"),
    (lambda folder: (folder / INDEX).write_text("[]"), "not a JSON object"),
    (lambda folder: (folder / INDEX).write_text("{}"), "has no weight_map"),
    (lambda folder: change_index(folder, lambda places: places.pop("lm_head.weight")), "has lm_head.weight in no file"),
    (lambda folder: change_index(folder, lambda places: places.update(no=SHARDS[0])), "but it is in none"),
    (
        lambda folder: change_index(folder, lambda places: places.update(no="../x.safetensors")),
        "not a safetensors file",
    ),
    (move, f"lm_head.weight in {SHARDS[1]}, but it is in"),
    (lambda folder: (folder / INDEX).unlink(), r"lacks model.safetensors"),
    (lambda folder: (folder / "config.json").unlink(), "cannot read"),
    (lambda folder: (folder / "config.json").write_text('{"quantization_config": {}}'), "quantized already"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGES)
def test_what_is_not_whole_is_refused(tmp_path: Path, damage: Callable[[Path], object], why: str) -> None:
    folder = write_checkpoint(tmp_path / "in")
    damage(folder)
    with pytest.raises(ValueError, match=why):
        open_source(folder)


def test_a_name_of_the_hub_has_to_be_downloaded() -> None:
    with pytest.raises(ValueError, match=r"in: some/model is no folder; .*: hf download some/model"):
        open_source(Path("some/model"))
    with pytest.raises(ValueError, match=r"in: /no/such is no folder; name that of a checkpoint$"):
        open_source(Path("/no/such"))


def test_files_besides_weights_are_copied(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "in")
    for name in (
        "model.bin",
        "model.bin.index.json",
        "consolidated.safetensors",
        ".cache/x",
        "1_Pooling/config.json",
        ".gitattributes",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    copied = [str(path) for path in open_source(folder).others]
    assert copied == [".gitattributes", "1_Pooling/config.json", "tokenizer.json"]
