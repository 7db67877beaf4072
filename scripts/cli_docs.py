#!/usr/bin/env python3
"""Generates the tables of fields and the reference in docs/cli.md; the rest of the page is written by hand.

scripts/cli_docs.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec, to_text
from typer.main import get_command

from jitnorm.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
MARK = "<!-- From here on scripts/cli_docs.py writes this page. -->\n"
# The table of fields goes between these markers; the first names the dataclass.
FIELDS = re.compile(r"(<!-- scripts/cli_docs.py writes the fields of (\w+) -->\n).*?(?=<!-- /fields -->)", re.DOTALL)
DESCRIBED = {described.__name__: described for described in (KernelConfig, QuantSpec)}
# Typer's own options, whose help changes with its version; described by hand.
LEFT_OUT = ("help", "install_completion", "show_completion")


def page(present: str) -> str:
    """Generate the page: the handwritten part with new tables of fields, then the reference."""
    by_hand, mark, _ = present.partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {MARK!r}")
    by_hand = FIELDS.sub(lambda found: f"{found[1]}\n{field_table(DESCRIBED[found[2]])}\n", by_hand)
    return by_hand + mark + "\n" + "\n".join(section for section in sections(get_command(app), "jitnorm"))


def field_table(described: type[Any]) -> str:
    """Tabulate the fields of a dataclass in order, as its docstring describes them."""
    arguments = re.search(r"^Args:\n(.*?)\n\n", cleandoc(described.__doc__ or ""), re.DOTALL | re.MULTILINE)
    assert arguments is not None
    found = re.findall(r"^    (\w+): (.*?)(?=\n    \w|\Z)", arguments[1], re.DOTALL | re.MULTILINE)
    meanings = {name: re.sub(r"\s+", " ", text).replace("``", "`").replace("|", "\\|") for name, text in found}
    rows = [f"| `{each.name}` | {meanings[each.name].rstrip('.')} | {_default(each)} |" for each in fields(described)]
    return "\n".join(["| field | meaning | default |", "| --- | --- | --- |", *rows, ""])


def _default(field: Any) -> str:
    if field.default is MISSING:
        return "must be given"
    return f"`{to_text(field.default)}`" if field.default != "" else ""


def sections(command: Any, name: str) -> Iterator[str]:
    """Generate the sections of a command and its subcommands."""
    children = getattr(command, "commands", {})
    yield "\n".join(_lines(command, name, is_group=bool(children)))
    for child in children.values():
        if not child.hidden:
            yield from sections(child, f"{name} {child.name}")


def _lines(command: Any, name: str, *, is_group: bool) -> Iterator[str]:
    parameters = [each for each in command.params if each.name not in LEFT_OUT and not getattr(each, "hidden", False)]
    arguments = [each for each in parameters if _is_argument(each)]
    words = [_argument(each) for each in arguments]
    options = ["[OPTIONS]"] if len(parameters) > len(arguments) else []
    synopsis = " ".join([name, *options, *words, *(["COMMAND"] if is_group else [])])
    yield f"### `{synopsis}`"
    yield ""
    # Help texts escape literal brackets for the terminal.
    yield from (command.help or "").replace("\\[", "[").strip().splitlines()
    yield ""
    if parameters:
        yield "| | |"
        yield "| --- | --- |"
        yield from (f"| `{_label(each)}` | {_help(each)} |" for each in parameters)
        yield ""


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _argument(parameter: Any) -> str:
    word = parameter.metavar or parameter.name.upper()
    return word if parameter.required or word.startswith("[") else f"[{word}]"


def _label(parameter: Any) -> str:
    if _is_argument(parameter):
        return _argument(parameter)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {parameter.metavar or parameter.name.upper()}"


def _help(parameter: Any) -> str:
    text, default = (parameter.help or "").replace("|", "\\|"), parameter.default
    is_told = _is_argument(parameter) or "efault" in text or isinstance(default, bool)
    return (
        text
        if is_told or not isinstance(default, (str, int, float)) or not default
        else f"{text} Default: `{default}`."
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
