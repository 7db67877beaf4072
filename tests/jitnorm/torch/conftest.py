from __future__ import annotations

from unoptimized import unoptimized

__all__ = ["unoptimized"]
