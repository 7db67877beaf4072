#!/usr/bin/env python3
"""Assembles the pages of the documentation site, which scripts/docs then builds.

    python scripts/site_pages.py FOLDER

The pages are those of docs/, the README, the changelog, and a reference of all ops. Links to other files lead to the
repository.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import site_ops

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/jitnorm/jitnorm"
HERE = (f"{REPOSITORY}/blob/main/", "https://raw.githubusercontent.com/jitnorm/jitnorm/main/")
# Pages from outside docs/, by their places on the site.
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def assemble(folder: Path) -> None:
    """Write the configuration and all pages into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "pages", ignore=shutil.ignore_patterns("zensical.toml"))
    shutil.copy(ROOT / "docs" / "zensical.toml", folder)
    for source in (ROOT / "docs").rglob("*.md"):
        write(folder / "pages" / source.relative_to(ROOT / "docs"), relinked(source))
    for name, target in OUTSIDE.items():
        write(folder / "pages" / target, relinked(ROOT / name))
    for name, text in site_ops.pages().items():
        write(folder / "pages" / name, text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def relinked(source: Path) -> str:
    """Rewrite the links of a page for the site."""
    parts = FENCED.split(source.read_text(encoding="utf-8"))
    parts[::2] = [LINK.sub(lambda found: link(source, found[1]), part) for part in parts[::2]]
    return "".join(parts)


def link(source: Path, target: str) -> str:
    """The target of a page's link on the site."""
    folder = source.parent
    for prefix in HERE:
        if target.startswith(prefix):
            folder, target = ROOT, target.removeprefix(prefix)
    if "://" in target:
        return target
    path = Path(os.path.normpath(folder / target)).relative_to(ROOT)
    if str(path) in OUTSIDE:
        on_site = Path(OUTSIDE[str(path)])
    elif path.parts[0] == "docs":
        on_site = path.relative_to("docs")
    else:
        return HERE[0] + str(path)
    own = source.relative_to(ROOT)
    start = "." if str(own) in OUTSIDE else own.parent.relative_to("docs")
    return os.path.relpath(on_site, start)


if __name__ == "__main__":
    assemble(Path(sys.argv[1]))
