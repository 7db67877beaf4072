"""Hyper-connections (mHC) without a norm."""

from __future__ import annotations

from typing import Any

from jitnorm.catalogue.op import Choices, Fields, Op


def _streams(streams: int) -> Fields:
    return {"streams": streams}


MHC_POST = Op(
    "mhc_post", "the streams of hyper-connections (mHC) after a layer: mixed, with its output added to each",
    {"op": "mhc_post"}, _streams, choices={"streams": 4},
)  # fmt: skip


def _mapped(streams: int, sinkhorn: int, splits: int = 1) -> Fields:
    return {"streams": streams, "sinkhorn": sinkhorn, "splits": splits}


def _mapped_options(_: Choices, fields: Fields) -> dict[str, Any]:
    return {"sinkhorn_rounds": fields["sinkhorn"]}


_NAMES = {"out": "layer_input", "sinkhorn": "sinkhorn_rounds"}
MHC_PRE = Op(
    "mhc_pre", "the streams before a layer, mixed by factors computed from projections, and the factors after it",
    {"op": "quantize"}, _mapped, _NAMES, choices={"streams": 4, "sinkhorn": 20, "splits": 1}, options=_mapped_options,
)  # fmt: skip
MHC_PRE_WITH_PRENORM = Op(
    "mhc_pre_with_prenorm", "the same, also computing the sum of the streams' squares",
    {"op": "quantize", "prenorm": True}, _mapped, _NAMES, choices={"streams": 4, "sinkhorn": 20},
    options=_mapped_options,
)  # fmt: skip

OPS = (MHC_PRE, MHC_PRE_WITH_PRENORM, MHC_POST)
