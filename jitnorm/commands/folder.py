"""Where the user's cache lies."""

from __future__ import annotations

from jitnorm.cache import default_root
from jitnorm.commands.console import print_json


def show_folder(*, as_json: bool) -> None:
    """Print the folder of the user's cache."""
    path = default_root().absolute()
    if as_json:
        print_json({"path": path, "exists": path.is_dir()})
    else:
        print(path)
