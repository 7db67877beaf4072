from __future__ import annotations

from wheel_fixtures import bare_python, dist, site

__all__ = ["bare_python", "dist", "site"]
