"""Lines break where the text allows: commands, entries and tables are whole, and continuations are indented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
WIDTH = 120
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What a script writes into a page has the script's lines.
GENERATED = re.compile(r"<!-- [^>]* writes .*?(?:<!-- /fields -->|<!-- to here -->|\Z)", re.DOTALL)
COMMANDS = {"build/quantize", "cd", "cmake", "export", "gh", "git", "jitnorm", "ls", "pip", "pytest", "python", "vllm"}
SECTION = re.compile(r"(Args|Attributes|Raises|Returns):$")
ENTRY = re.compile(r"    \S*\w(, \S*\w)*: ")


def commands(page: str) -> Iterator[str]:
    for language, block in FENCED.findall(page):
        if language == "bash":
            yield from block.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_bash_are_commands_and_comments_hide_none(page: Path) -> None:
    for line in filter(None, commands(page.read_text(encoding="utf-8"))):
        command, _, comment = line.partition(" #")
        first = re.sub(r"^(\w+=\S* )+", "", command).split()[0]
        assert first in COMMANDS or first.startswith("scripts/"), line
        assert not re.search("#|pip install", comment), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_pages_fit_the_width(page: Path) -> None:
    text = FENCED.sub("", GENERATED.sub("", page.read_text(encoding="utf-8")))
    lines = [line for line in text.splitlines() if not line.startswith(("|", "!["))]
    assert [line for line in lines if len(line) > WIDTH] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_of_tables_follow_a_heading(page: Path) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [table for table in tables if not re.match(r".*\n\|( ?:?-+:? ?\|)+\n", table)] == []


@pytest.mark.parametrize("folder", ["jitnorm", "kernels", "cache", "scripts", "examples"])
def test_entries_of_docstrings_indent_what_continues_them(folder: str) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    for path in paths:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = (ast.get_docstring(node) for node in nodes if isinstance(node, documented))
        assert [line for text in texts if text for line in misplaced(text)] == [], path


def misplaced(docstring: str) -> Iterator[str]:
    """The lines of sections that are neither entries nor indented below one; the text of Returns is one paragraph."""
    section = ""
    for line in docstring.splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
        elif not line:
            section = ""
        elif section == "Returns":
            if not re.match(r"    \S", line):
                yield line
        elif section and not ENTRY.match(line) and not re.match(r"        \S", line):
            yield line


def test_misplaced_lines_are_found() -> None:
    text = "Args:\n    first: with a text\n{}of two lines.\n    *rest: all others.\n\nReturns:\n    what\n{}it is.\n"
    assert list(misplaced(text.format(" " * 8, " " * 4))) == []
    assert list(misplaced(text.format(" " * 4, " " * 8))) == ["    of two lines.", "        it is."]
    assert list(misplaced(text.format("", ""))) == ["of two lines.", "it is."]
