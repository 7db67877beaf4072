"""What the documentation says is so: links lead somewhere, examples run, its tables leave nothing out."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.target import TARGET_NAMES, Target

from jitnorm.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def examples_of(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


IN_TORCH, IN_JAX, EXAMPLES = map(examples_of, ("docs/torch.md", "docs/jax.md", "README.md"))
(OF_CHECKPOINTS,) = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "checkpoints.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)
# Pages whose examples need no names of their own.
OTHERS = {
    f"{page}-{number}": example
    for page in ("start", "concepts", "migrate", "layouts", "checkpoints", "adding", "determinism", "parallel")
    for number, example in enumerate(examples_of(f"docs/{page}.md"))
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_a_part_of_a_page_lead_to_a_heading(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    lost = [anchor for file, anchor in links if anchor not in headings(page.parent / file if file else page)]
    assert lost == []


@pytest.mark.parametrize("example", EXAMPLES, ids=["torch", "numpy"])
def test_the_examples_of_the_readme_run(example: str) -> None:
    for needed, framework in (("torch", "torch"), ("jax", "jax"), ("jax_tvm_ffi", "jax")):
        if f"import {framework}\n" in example:
            pytest.importorskip(needed, reason=f"the example is for users of {framework}")
    exec(compile(example, "README.md", "exec"), {})


@pytest.mark.parametrize(
    "example",
    IN_TORCH,
    ids=["compiled", "gradients", "operators", "ranks", "modules", "fused", "trees", "gemm", "files"],
)
def test_the_examples_of_the_page_on_torch_run(example: str) -> None:
    pytest.importorskip("torch", reason="the page is for users of torch")
    exec(compile(example, "torch.md", "exec"), {})


@pytest.mark.parametrize("example", IN_JAX, ids=["residual", "sharded", "exported"])
def test_the_examples_of_the_page_on_jax_run(example: str) -> None:
    pytest.importorskip("jax_tvm_ffi", reason="the page is for users of JAX with jitnorm[jax]")
    if "serialize" in example:
        pytest.importorskip("flatbuffers", reason="JAX serializes with flatbuffers")
    exec(compile(example, "jax.md", "exec"), {})


def test_the_example_of_the_page_on_checkpoints_runs() -> None:
    exec(compile(OF_CHECKPOINTS, "checkpoints.md", "exec"), {})


@pytest.mark.parametrize("name", OTHERS)
def test_the_examples_of_other_pages_run(name: str) -> None:
    for package in ("torch", "jax", "safetensors"):
        if re.search(rf"^(import|from) {package}\b", OTHERS[name], re.MULTILINE):
            pytest.importorskip(package, reason=f"the example is for users of {package}")
    exec(compile(OTHERS[name], f"{name}.md", "exec"), {})


def test_no_page_has_examples_that_no_test_runs() -> None:
    elsewhere = {"README", "torch", "jax", "transformers"}
    needs_a_gpu = {"backends"}
    with_examples = {page.stem for page in PAGES if examples_of(str(page.relative_to(ROOT)))}
    assert with_examples == {name.rpartition("-")[0] for name in OTHERS} | elsewhere | needs_a_gpu


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_arguments_that_pages_give_them(page: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        if line.startswith("jitnorm "):
            check_arguments(shlex.split(line, comments=True)[1:])


@cache
def parser() -> Any:
    return typer.main.get_command(app)


def check_arguments(words: list[str]) -> None:
    """Raise click's error unless there is such a command with such arguments, but for files that are not there."""
    command = parser()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    end = next((at for at, word in enumerate(words) if word in ("|", ">", "&&")), len(words))
    try:
        command.make_context("jitnorm", words[:end])
    except Exception as error:
        if "does not exist" not in str(error):
            raise


def test_every_variable_that_the_code_reads_is_on_the_page_on_the_cache() -> None:
    sources = (
        path.read_text(encoding="utf-8") for folder in ("jitnorm", "cache") for path in (ROOT / folder).rglob("*.py")
    )
    read = {name for source in sources for name in re.findall(r"\"(JITNORM_[A-Z_]+)\"", source)}
    text = (ROOT / "docs" / "cache.md").read_text(encoding="utf-8")
    assert read == set(re.findall(r"\| `(JITNORM_[A-Z_]+)` \|", text))


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_the_table_of_targets_tells_what_each_can_do(name: str) -> None:
    page = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \|(.*)$", page, re.MULTILINE)
    assert row is not None
    _, e4m3, e2m1, pdl, _ = (cell.strip() for cell in row[1].strip("|").split("|"))
    target = Target(name)
    assert (e4m3 == "instruction") == target.has_native_e4m3
    assert (e2m1 == "instruction") == target.has_native_e2m1
    assert (pdl == "yes") == target.has_pdl


def test_the_page_on_the_command_line_has_what_the_program_says_of_itself() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))["page"](page) == page, "run scripts/cli_docs.py"


@pytest.mark.parametrize("described", [KernelConfig, QuantSpec], ids=lambda each: each.__name__)
def test_the_page_on_the_command_line_describes_every_field_of_a_configuration(described: type) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.partition(f"writes the fields of {described.__name__} -->")[2].partition("<!-- /fields -->")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \|", table, re.MULTILINE) == [each.name for each in fields(described)]


# Relative clauses and pronouns that a noun or a verb says better; "Whether" is idiomatic for booleans.
PRONOUNS = "It|Its|They|Their|Those|These|This|That|What|Which|Who|Whose|Of|But|As"


@pytest.mark.parametrize("folder", ["jitnorm", "kernels", "cache", "scripts"])
def test_docstrings_begin_with_a_noun_or_a_verb(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules
    nodes = [(path, node) for path in modules for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [(path, ast.get_docstring(node)) for path, node in nodes if isinstance(node, documented)]
    assert [(path.name, text) for path, text in texts if text and re.match(rf"({PRONOUNS})\b", text)] == []
