"""Gives Transformers models, and others written like them, jitnorm's norms and quantized matrix products."""

from __future__ import annotations

from jitnorm.integrations.transformers.model import apply, undo
from jitnorm.integrations.transformers.report import Report

__all__ = ["Report", "apply", "undo"]
