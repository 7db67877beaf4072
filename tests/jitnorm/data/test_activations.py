"""The activations that ship with the package are what their README says."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import jitnorm


@pytest.mark.parametrize(
    ("site", "outliers", "least"), [("l3_mlp", [223, 99, 127], 7.8), ("l5_mlp", [223, 127, 319], 56)]
)
def test_the_shipped_activations_have_the_outliers_they_are_shipped_for(
    site: str, outliers: list[int], least: float
) -> None:
    with np.load(Path(jitnorm.__file__).parent / "data" / "activations.npz") as sample:
        assert sorted(sample) == ["gamma_l3_mlp", "gamma_l5_mlp", "x_l3_mlp", "x_l5_mlp"]
        x, gamma = (sample[f"{name}_{site}"].view(ml_dtypes.bfloat16) for name in ("x", "gamma"))
    assert (x.shape, gamma.shape) == ((256, 384), (384,))
    rms = np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=0))
    ratio = rms / np.median(rms)
    assert np.argsort(-ratio)[:3].tolist() == outliers
    assert ratio[outliers[2]] > least
    vanishing = np.abs(gamma.astype(np.float32)) < 1e-8
    assert sorted(np.flatnonzero(vanishing)) == (sorted(outliers) if site == "l5_mlp" else [])
