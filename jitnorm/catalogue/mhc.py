"""Hyper-connections (mHC) without a norm."""

from __future__ import annotations

from jitnorm.catalogue.op import Fields, Op


def _streams(streams: int) -> Fields:
    return {"streams": streams}


MHC_POST = Op(
    "mhc_post", "the streams of hyper-connections (mHC) behind a layer: mixed, and what it gives added to each",
    {"op": "mhc_post"}, _streams, choices={"streams": 4},
)  # fmt: skip

OPS = (MHC_POST,)
