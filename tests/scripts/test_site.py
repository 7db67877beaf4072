"""The documentation site builds without warnings, its links lead somewhere, and its search finds ops."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import browser
import check_site
import pytest
import site_ops
import site_pages

from jitnorm.catalogue import OPS

# Every op is an address of the site; where the site cannot be built, CI fails rather than skips.
if "CI" not in os.environ:
    pytest.importorskip("zensical", reason="the site is built with jitnorm[docs]")
PROGRAM = browser.installed()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    site_pages.assemble(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", folder / "zensical.toml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_nothing_is_wrong_with_it(site: Path) -> None:
    assert list(check_site.faults(site)) == []


def test_every_page_is_in_the_navigation(site: Path) -> None:
    pages = {path.relative_to(site.parent / "pages").as_posix() for path in (site.parent / "pages").rglob("*.md")}
    config = (site.parent / "zensical.toml").read_text(encoding="utf-8")
    assert {page for page in pages if f'= "{page}" }}' not in config} == set()


def test_every_public_op_has_a_section_with_its_arguments() -> None:
    reference = "".join(site_ops.pages().values())
    for op in OPS.values():
        if op.computes:
            assert reference.count(f"\n## `{op.name}`\n\n```python\njitnorm.{op.name}(") == 1


def test_the_check_finds_what_is_wrong(site: Path, tmp_path: Path) -> None:
    for name in ("index.html", "start.html"):
        text = (site / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "search.json").write_text('{"items": [{"location": "start.html#gone", "title": "rmsnorm"}]}')
    wrong = "<p id='a'>see ](b.md)</p><a href='start.html#nowhere'></a><img src='no.svg'><script src='//x.org/a.js'>"
    (tmp_path / "wrong.html").write_text(wrong, encoding="utf-8")
    found = [fault for fault in check_site.faults(tmp_path) if fault.startswith(("wrong", "search"))]
    assert len([fault for fault in found if fault.startswith("wrong")]) == 4
    assert "search: start.html#gone leads nowhere" in found
    assert "search: layernorm is no title" in found
    assert "search: rmsnorm is no title" not in found


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    opened = browser.Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["index", "layouts", "ops/encoding_norms", "numerics"])
def test_pages_fit_the_screen_and_their_pictures_load(
    page: browser.Browser, address: str, name: str, width: int
) -> None:
    page.open(f"{address}/{name}.html", width)
    page.evaluate("document.querySelectorAll('img').forEach(each => each.loading = 'eager')")
    page.wait_for("[...document.images].every(each => each.complete)")
    assert page.evaluate("[...document.images].filter(each => !each.naturalWidth).map(each => each.src)") == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('h1').getBoundingClientRect().right") <= width


# The search lives in a tree of its own.
SEARCH = "[...document.querySelectorAll('*')].find(each => each.shadowRoot).shadowRoot"


@pytest.mark.parametrize("name", ["rmsnorm_fp4quant", "block_scale_interleave"])
def test_the_search_finds_an_op_first(page: browser.Browser, address: str, name: str) -> None:
    page.open(f"{address}/index.html")
    page.evaluate("document.querySelector('.md-search__button').click()")
    page.wait_for(f"{SEARCH}.activeElement")
    page.send("Input.insertText", text=name)
    page.wait_for(f"{SEARCH}.querySelector('a[href]')?.href.endsWith('#{name}')")
