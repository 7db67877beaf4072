#!/usr/bin/env python3
"""Checks the built documentation site without a browser.

    python scripts/check_site.py FOLDER

Links within the site must lead to pages, anchors to places on them, and pictures to files. Nothing may be loaded from
other hosts, no Markdown may be left unrendered, and the search must find every op.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from jitnorm.catalogue import OPS

# The attributes of tags that make a browser load something.
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}
# Links that describe the page and load nothing.
UNLOADED = {"canonical", "next", "prev", "alternate"}
UNREAD = re.compile(r"\]\(|^\s*[-*] \S|\| ?---|```", re.MULTILINE)


@dataclass
class Page(HTMLParser):
    """A page's anchors, its links, what it loads, and its text outside of code."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.ids |= {known[name] for name in ("id", "name") if name in known}
        if tag == "a" and "href" in known:
            self.links.append(known["href"])
        if known.get("rel") not in UNLOADED:
            self.loaded += [value for name, value in known.items() if (tag, name) in LOADED]
        if tag in ("p", "li", "code", "pre", "script", "style"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("p", "li"):
            self.prose.append(data)


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def faults(folder: Path) -> Iterator[str]:
    """Faults of a site, one per line."""
    pages = {path.relative_to(folder).as_posix(): read(path) for path in sorted(folder.rglob("*.html"))}
    if len(pages) < 20:
        yield f"{folder} has {len(pages)} pages"
    for name, page in pages.items():
        # The page that the server shows for any unknown address has absolute links.
        if name != "404.html":
            yield from faults_of_links(folder, name, pages)
        yield from (f"{name}: loads {each} from another host" for each in page.loaded if urlsplit(each).netloc)
        yield from (f"{name}: unrendered Markdown: {each.strip()[:80]}" for each in page.prose if UNREAD.search(each))
    yield from faults_of_search(folder, pages)


def faults_of_links(folder: Path, name: str, pages: dict[str, Page]) -> Iterator[str]:
    for target in (*pages[name].links, *pages[name].loaded):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        path = unquote(urljoin(name, parts.path)) if parts.path else name
        if not (folder / path).is_file():
            yield f"{name}: {target} leads to no file"
        elif parts.fragment and path in pages and unquote(parts.fragment) not in pages[path].ids:
            yield f"{name}: {target} leads to no place of {path}"


def faults_of_search(folder: Path, pages: dict[str, Page]) -> Iterator[str]:
    """Ops missing from the titles of the search index, and entries that lead nowhere."""
    items = json.loads((folder / "search.json").read_text(encoding="utf-8"))["items"]
    titles = {re.sub(r"<[^>]+>", "", item["title"]) for item in items}
    yield from (f"search: {op.name} is no title" for op in OPS.values() if op.computes and op.name not in titles)
    for location in (item["location"] for item in items):
        path, _, anchor = location.partition("#")
        if path not in pages or (anchor and unquote(anchor) not in pages[path].ids):
            yield f"search: {location} leads nowhere"


def main(folder: Path) -> int:
    found = list(faults(folder))
    print(*found, sep="\n", file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
