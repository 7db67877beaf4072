"""The import rules of docs/architecture.md hold, and every source file begins by saying what it is."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = ("jitnorm", "kernels", "cache")
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".h", ".cuh", ".cc"}
)
MODULES = [path for path in SOURCES if path.suffix == ".py"]


def module_name(path: Path) -> str:
    """The dotted name that a file is installed under."""
    parts = path.with_suffix("").parts
    installed = parts if parts[0] == "jitnorm" else ("jitnorm", *parts)
    return ".".join(installed[:-1] if installed[-1] == "__init__" else installed)


@cache
def import_statements(path: Path, *, at_import_only: bool) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    nodes = tree.body if at_import_only else ast.walk(tree)
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, *, at_import_only: bool = False) -> Iterator[str]:
    """Absolute names of what a file imports, also for type checkers only and within functions."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in import_statements(path, at_import_only=at_import_only):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def violations(paths: list[Path], is_allowed: Callable[[str], bool]) -> list[str]:
    return [f"{path} imports {name}" for path in paths for name in imports(path) if not is_allowed(name)]


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def below(folder: str) -> list[Path]:
    found = [path for path in MODULES if path.as_posix().startswith(f"{folder}/")]
    assert found, f"{folder} has no modules; the test looks in the wrong place"
    return found


def test_kernels_import_only_themselves_and_the_standard_library() -> None:
    """The kernels in CuTe-DSL are exempt; only the code that builds them imports them."""
    modules = [path for path in below("kernels") if path not in below("kernels/cute")]
    assert violations(modules, lambda n: is_standard(n) or within(n, "jitnorm.kernels")) == []
    allowed = ("jitnorm.kernels", "cutlass")
    assert violations(below("kernels/cute"), lambda n: is_standard(n) or within(n, *allowed)) == []
    assert violations(MODULES, lambda n: not within(n, "jitnorm.kernels.cute.build")) == [
        "jitnorm/toolchains/cute.py imports jitnorm.kernels.cute.build.build"
    ]


def test_the_cache_imports_only_itself_the_standard_library_and_its_few_packages() -> None:
    allowed = ("jitnorm.cache", "jitnorm.forks", "fsspec", "cryptography")
    assert violations(below("cache"), lambda n: is_standard(n) or within(n, *allowed)) == []


def test_the_catalogue_imports_only_itself_and_kernels() -> None:
    allowed = ("jitnorm.catalogue", "jitnorm.kernels")
    assert violations(below("jitnorm/catalogue"), lambda n: is_standard(n) or within(n, *allowed)) == []


def test_the_reference_imports_nothing_else_of_the_project() -> None:
    assert (
        violations(below("jitnorm/reference"), lambda n: not within(n, "jitnorm") or within(n, "jitnorm.reference"))
        == []
    )


def test_toolchains_import_of_the_project_only_themselves_forks_the_target_and_kernels_that_they_trace() -> None:
    allowed = ("jitnorm.toolchains", "jitnorm.forks", "jitnorm.kernels.target", "jitnorm.kernels.cute")
    assert violations(below("jitnorm/toolchains"), lambda n: not within(n, "jitnorm") or within(n, *allowed)) == []


def test_only_commands_and_wheels_warm_the_cache() -> None:
    within_it = (Path("jitnorm/warm"), Path("jitnorm/wheel"), Path("jitnorm/commands"))
    outside = [p for p in MODULES if p.parent not in within_it]
    library = [p for p in outside if p != Path("jitnorm/cli.py")]
    assert violations(library, lambda n: not within(n, "jitnorm.warm")) == []


def test_only_commands_measure() -> None:
    measuring = (Path("jitnorm/bench"), Path("jitnorm/tune"))
    outside = [p for p in MODULES if p.parent not in (*measuring, Path("jitnorm/commands"))]
    assert violations(outside, lambda n: not within(n, "jitnorm.bench", "jitnorm.tune")) == []
    assert violations(below("jitnorm/bench"), lambda n: not within(n, "jitnorm.tune")) == []


def test_only_integrations_import_the_operators_of_torch() -> None:
    within_it = (Path("jitnorm/torch"), Path("jitnorm/integrations"))
    others = [p for p in MODULES if not set(within_it).intersection(p.parents)]
    assert violations(others, lambda n: not within(n, "jitnorm.torch")) == []


def test_nothing_imports_integrations() -> None:
    others = [p for p in MODULES if Path("jitnorm/integrations") not in p.parents]
    assert violations(others, lambda n: not within(n, "jitnorm.integrations")) == []


def test_only_commands_build_wheels() -> None:
    outside = [p for p in MODULES if p.parent not in (Path("jitnorm/wheel"), Path("jitnorm/commands"))]
    assert violations(outside, lambda n: not within(n, "jitnorm.wheel")) == []


def test_only_commands_quantize_checkpoints() -> None:
    outside = [p for p in MODULES if p.parent not in (Path("jitnorm/checkpoint"), Path("jitnorm/commands"))]
    assert violations(outside, lambda n: not within(n, "jitnorm.checkpoint")) == []


def test_nothing_imports_the_command_line() -> None:
    library = [p for p in MODULES if p != Path("jitnorm/cli.py") and p.parent != Path("jitnorm/commands")]
    assert violations(library, lambda n: not within(n, "jitnorm.cli", "jitnorm.commands")) == []


def test_the_command_line_imports_its_commands_only_when_they_run() -> None:
    shared = ("jitnorm.commands.arguments",)
    groups = [path for path in below("jitnorm/commands") if path.stem.endswith("_app")]
    assert groups
    declarations = [Path("jitnorm/cli.py"), *groups, *(Path(f"{name.replace('.', '/')}.py") for name in shared)]
    allowed = (*shared, *map(module_name, groups))
    names = [(path, name) for path in declarations for name in imports(path, at_import_only=True)]
    assert [(path, name) for path, name in names if within(name, "jitnorm") and not within(name, *allowed)] == []


def says_what_it_is(path: Path) -> bool:
    text = (ROOT / path).read_text(encoding="utf-8")
    return bool(ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else re.match(r"// \S", text))


def test_a_source_file_begins_with_what_it_is() -> None:
    assert SOURCES
    assert [path for path in SOURCES if not says_what_it_is(path)] == []


def test_every_path_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:jitnorm|kernels|cache|docs|tests)/[\w./]*\w", text))
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
