"""A GPU writes the same bytes as the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoints import contents, write_checkpoint

from jitnorm.checkpoint.convert import quantize_checkpoint
from jitnorm.checkpoint.layouts import FORMATS, layout_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("format", FORMATS)
def test_a_gpu_writes_the_same_bytes(tmp_path: Path, format: str) -> None:
    source = write_checkpoint(tmp_path / "in")
    for device in ("cpu", "cuda"):
        for _ in quantize_checkpoint(source, tmp_path / device, layout_of(format), device=device):
            pass
    assert contents(tmp_path / "cuda") == contents(tmp_path / "cpu")
