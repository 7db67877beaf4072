"""The comparison of bytes on a few rows: what has to be equal is, and a difference is found."""

from __future__ import annotations

from typing import Any

import determinism
import numpy as np
import pytest

FEW = {"rmsnorm_fp4quant": determinism.CALLS["rmsnorm_fp4quant"]}


@pytest.fixture(autouse=True)
def _few_ops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all ops but one to GPUs: each takes kernels of its own, which have to be compiled."""
    if "gpu" not in request.keywords:
        monkeypatch.setattr(determinism, "CALLS", FEW)


def test_rows_have_the_same_bytes_in_chunks() -> None:
    found = [row for row in determinism.batches(520, 256) if row.where == "cpu"]
    assert [(row.differ, row.count > 0) for row in found] == [(0, True)] * len(FEW)


def test_frameworks_give_the_same_bytes() -> None:
    found = list(determinism.places(8, 256))
    assert len(found) == len(FEW) * (len(determinism.frameworks()) - 1)
    assert [row for row in found if row.differ] == []


def test_torchao_gives_the_same_bytes_where_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    peers = determinism.determinism_peers.PEERS["torchao"]
    chosen = {name: compare for name, compare in peers.items() if name[0] == "quantize, MXFP8, floor"}
    monkeypatch.setattr(determinism.determinism_peers, "PEERS", {"torchao": chosen})
    (found,) = determinism.peers(8, 256)
    assert (found.differ, found.has_to_be_equal) == (0, True)


def test_chunks_hold_each_row_once_and_have_many_lengths() -> None:
    found = list(determinism.chunks(4096))
    assert np.concatenate([np.arange(4096)[chunk] for chunk in found]).tolist() == list(range(4096))
    assert len({chunk.stop - chunk.start for chunk in found}) > 10
    assert max(chunk.stop - chunk.start for chunk in found) <= 255


def test_what_depends_on_other_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def relative(x: Any, weight: Any) -> Any:
        return x - x[:1]

    monkeypatch.setattr(determinism, "CALLS", {"relative": relative})
    assert all(row.differ for row in determinism.batches(520, 256))


def test_the_page_has_a_row_for_everything_that_is_compared() -> None:
    page = determinism.PAGE.read_text(encoding="utf-8")
    assert determinism.HEAD in page
    for peer in (name for functions in determinism.determinism_peers.PEERS.values() for name in functions):
        assert f"| {peer[0]} | {peer[1]} | cpu |" in page, "run scripts/determinism --markdown"


@pytest.mark.gpu
def test_gpus_give_the_same_bytes_in_chunks_and_as_the_cpu() -> None:
    rows = [*determinism.batches(4096, 4096), *determinism.places(64, 4096)]
    assert "cuda" in {row.where for row in rows}
    assert [row for row in rows if row.differ] == []
