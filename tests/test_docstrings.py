"""Examples in docstrings run and give what they say; every public function has one."""

from __future__ import annotations

import doctest
import re
import tempfile
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from types import ModuleType

import pytest
from jitnorm.cache import failures
from unoptimized import unoptimized

import jitnorm
from jitnorm import comm, reference

__all__ = ["unoptimized"]

ROOT = Path(__file__).parents[1]
PACKAGES = {"jitnorm": "jitnorm", "kernels": "jitnorm.kernels", "cache": "jitnorm.cache"}
# Packages that some modules import, and those that their examples need in addition.
OPTIONAL = ("torch", "jax")
NEEDED = {"jitnorm.jax": "jax_tvm_ffi"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples() -> dict[str, int]:
    """How many examples the text of each module has, by the module's name."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if count := len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found[".".join((package, *(part for part in parts if part != "__init__")))] = count
    return found


EXAMPLES = examples()


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_module_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where examples leave folders
    monkeypatch.setattr(failures, "_reasons", {})  # those of other tests
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"the examples are for users of {NEEDED[name]}")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"the examples are for users of {error.name}")
    found = doctest.testmod(module, optionflags=FLAGS)
    run = found.attempted - getattr(found, "skipped", 0)  # Python 3.13 and later count both
    assert (found.failed, run) == (0, EXAMPLES[name])


@pytest.mark.parametrize("module", [jitnorm, comm, reference], ids=lambda module: module.__name__)
def test_every_public_function_has_an_example(module: ModuleType) -> None:
    functions = {name: found for name in module.__all__ if isfunction(found := getattr(module, name))}
    assert functions
    assert not [name for name, found in functions.items() if ">>> " not in str(found.__doc__)]
