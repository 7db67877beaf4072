"""The reference as a package: what it exports and the examples in its documentation."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from jitnorm import reference

MODULES = [
    reference.__name__,
    *(f"{reference.__name__}.{m.name}" for m in pkgutil.iter_modules(reference.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_documentation_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", [name for name in reference.__all__ if name.startswith("quantize_")])
def test_every_quantization_has_an_example(name: str) -> None:
    examples = doctest.DocTestFinder().find(getattr(reference, name))[0].examples
    assert examples or name in str(reference.__doc__)
