"""Models of Transformers, and others written like them, with jitnorm's norms and quantized matrix products."""

from __future__ import annotations

from jitnorm.integrations.transformers.model import apply, undo
from jitnorm.integrations.transformers.report import Report

__all__ = ["Report", "apply", "undo"]
