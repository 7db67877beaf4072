"""docs/compatibility.md says what the modules have."""

from __future__ import annotations

from importlib import import_module

import compatibility
import pytest

TEXT = compatibility.PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert compatibility.page(TEXT) == TEXT, "run scripts/compatibility.py"


@pytest.mark.parametrize(("module", "functions"), [peer[1:] for peer in compatibility.PEERS])
def test_every_function_of_a_module_is_listed(module: str, functions: dict[str, str]) -> None:
    public = import_module(f"jitnorm.compat.{module}").__all__
    others = {"SfLayout", "_C", "activation", "comm", "diffusion_ops", "mhc", "norm", "page", "quantization", "rope"}
    assert set(public) - others <= set(functions)


def test_a_page_without_the_line_is_refused() -> None:
    with pytest.raises(SystemExit, match="has no line"):
        compatibility.page("# Compatibility\n")
