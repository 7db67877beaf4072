"""`jitnorm quantize` as seen by users: the page's examples, progress, plans and errors."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from checkpoints import KEPT, QUANTIZED, SHARDS, contents, write_checkpoint
from typer.testing import CliRunner, Result
from unoptimized import unoptimized

from jitnorm.checkpoint import convert
from jitnorm.cli import app
from jitnorm.commands import console

PAGE = Path(__file__).parents[3] / "docs" / "checkpoints.md"
EXAMPLES = re.findall(r"^\$ (jitnorm quantize .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

__all__ = ["unoptimized"]


@pytest.fixture(autouse=True)
def _checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unoptimized: None) -> None:
    """A checkpoint with the name used on the page."""
    write_checkpoint(tmp_path / "Qwen3-8B")
    monkeypatch.chdir(tmp_path)


def quantize(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["quantize", *arguments])


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_page_run(example: str) -> None:
    _, _, source, out, *options = shlex.split(example)
    result = quantize(source, out, *options)
    assert result.exit_code == 0, result.output
    assert (Path(out) / "config.json").exists() == ("--dry-run" not in options)


def test_a_pipe_gets_lines_of_progress_and_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    result = quantize("Qwen3-8B", "out", "--format", "mxfp4")
    told, lines = result.stderr.splitlines(), result.stdout.splitlines()
    assert told[0].startswith("scanned 0 B of ")
    assert re.fullmatch(r"written .* of .*, 100 %", told[-1])
    assert re.fullmatch(rf"{len(QUANTIZED)} weights in mxfp4, 3 files: .* become .* in out, .*", lines[-1])


def test_a_plan_names_every_matrix_and_writes_nothing() -> None:
    output = quantize("Qwen3-8B", "out", "--format", "nvfp4", "--dry-run").output
    assert all(name in output for name in (*QUANTIZED, *KEPT, "weight_packed:U8[256,128]"))
    found = json.loads(quantize("Qwen3-8B", "out", "--format", "nvfp4", "--dry-run", "--json").output)
    assert (sorted(found["weights"]), found["ignored"]) == (sorted(QUANTIZED), sorted(KEPT))
    assert not Path("out").exists()


def test_an_interrupt_says_how_to_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = convert.Output.finish

    def interrupted(self: convert.Output, name: str) -> None:
        finish(self, name)
        if name == SHARDS[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(convert.Output, "finish", interrupted)
    result = quantize("Qwen3-8B", "out", "--format", "mxfp4")
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        130,
        "Interrupted. Run the command again to resume.",
    )
    monkeypatch.setattr(convert.Output, "finish", finish)
    lines = quantize("Qwen3-8B", "out", "--format", "mxfp4").output.splitlines()
    assert lines[0] == "resumed: 1 of 3 files are written already"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("Qwen3-8B", "out", "--format", "nvpf4"), "format: 'nvpf4' is not known; .*did you mean 'nvfp4'"),
        (("Qwen3-8B", "out", "--format", "mxfp4", "--layout", "modelopt"), "layout: modelopt has no mxfp4"),
        (("Qwen3-8B", "out", "--format", "mxfp4", "--device", "gpu"), "device: 'gpu' is not known"),
        (("Qwen/Qwen3-8B", "out", "--format", "mxfp4"), "hf download Qwen/Qwen3-8B"),
        (("Qwen3-8B", "Qwen3-8B", "--format", "mxfp4"), "out: Qwen3-8B is in the checkpoint's folder"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], why: str) -> None:
    before = contents(Path.cwd())
    result = quantize(*arguments)
    assert result.exit_code == 2
    assert re.search(why, result.output)
    assert contents(Path.cwd()) == before
