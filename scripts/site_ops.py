"""Writes the site's reference of ops and types from the catalogue and the docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jitnorm
from jitnorm.catalogue import (
    activations,
    branches,
    decoders,
    encoding_norms,
    experts,
    gradients,
    mhc,
    moves,
    norms,
    quantizers,
)
from jitnorm.catalogue.op import Op

# The chapters, in the catalogue's order, by their page names below ops/.
CHAPTERS: dict[str, tuple[str, Any]] = {
    "norms": ("Norms", norms),
    "gradients": ("Gradients", gradients),
    "encoding_norms": ("Norms with quantization", encoding_norms),
    "branches": ("Gated branches and modulation", branches),
    "mhc": ("Hyper-connections", mhc),
    "activations": ("Activations", activations),
    "quantizers": ("Quantization", quantizers),
    "experts": ("Experts", experts),
    "decoders": ("Decoding", decoders),
    "moves": ("Layouts of scales and weights", moves),
}
TYPES = "types"
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n", re.MULTILINE)
LISTS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Errors"}


def pages() -> dict[str, str]:
    """The pages of the reference, by path."""
    written = {f"ops/{name}.md": chapter(title, ops_of(module)) for name, (title, module) in CHAPTERS.items()}
    others = [name for name in jitnorm.__all__ if name not in places()]
    entries = [entry(name, "") for name in others if not isinstance(getattr(jitnorm, name), jitnorm.QuantSpec)]
    written[f"ops/{TYPES}.md"] = "\n\n".join(["# Types and other functions", encodings(others), *entries]) + "\n"
    return written


def ops_of(module: Any) -> list[Op]:
    """The public ops of a module of the catalogue."""
    return [op for op in module.OPS if op.computes]


def places() -> dict[str, str]:
    """The page of each op."""
    return {op.name: name for name, (_, module) in CHAPTERS.items() for op in ops_of(module)}


def chapter(title: str, ops: Iterable[Op]) -> str:
    ops = list(ops)
    rows = [f"| [`{op.name}`](#{op.name}) | {op.computes} |" for op in ops]
    table = "\n".join(["| op | computes |", "| --- | --- |", *rows])
    return "\n\n".join([f"# {title}", table, *(entry(op.name, record(op)) for op in ops)]) + "\n"


def record(op: Op) -> str:
    """The encodings and layouts that the op's record allows, where it restricts them."""
    facts = {
        "Encodings": [f"{spec.element}/{spec.block_size}/{spec.scale_format}" for spec in op.formats],
        "Scale layouts": list(op.layouts),
        "Global scales": list(op.global_scales),
    }
    lines = [f"- {name}: {', '.join(f'`{value}`' for value in values)}" for name, values in facts.items() if values]
    return "\n".join(lines)


def encodings(names: Iterable[str]) -> str:
    """The table of the named encodings."""
    specs = [name for name in names if isinstance(getattr(jitnorm, name), jitnorm.QuantSpec)]
    rows = [f"| `{name}` | `{getattr(jitnorm, name)}` |" for name in specs]
    return "\n".join(["| name | [`QuantSpec`](#quantspec) |", "| --- | --- |", *rows])


def entry(name: str, facts: str) -> str:
    """The section on a function or a class: its signature and docstring."""
    described = getattr(jitnorm, name)
    parts = [f"## `{name}`", signature(name, described), facts, *docstring(inspect.getdoc(described) or "", name)]
    methods = vars(described).items() if inspect.isclass(described) else ()
    for method, value in methods:
        about = inspect.getdoc(value)
        if not method.startswith("_") and about and (callable(value) or isinstance(value, property | classmethod)):
            parts += [f"### `{name}.{method}`", *docstring(about, name)]
    return "\n\n".join(part for part in parts if part)


def signature(name: str, described: Any) -> str:
    """The call with its defaults, on one line or one argument per line; no types, which are all Any."""
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters(described)]
    call = str(inspect.Signature(bare))
    if len(name + call) > 90:
        call = "(\n    " + ",\n    ".join(_spelled(bare)) + ",\n)"
    return f"```python\njitnorm.{name}{call}\n```"


def _spelled(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters as in a signature, with a star before the keyword-only ones."""
    was_by_name = False
    for each in parameters:
        by_name = each.kind is inspect.Parameter.KEYWORD_ONLY
        if by_name and not was_by_name:
            yield "*"
        was_by_name = by_name
        yield str(each)


def parameters(described: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(described).parameters.values())
    except (TypeError, ValueError):
        return []


def docstring(text: str, own: str) -> Iterator[str]:
    """Convert the parts of a docstring to Markdown."""
    head, *sections = SECTION.split(text)
    yield linked(head.strip(), own)
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        body, rest = _indented(body)
        if title == "Example":
            yield f"```pycon\n{body}\n```"
        elif title in LISTS:
            items = re.findall(r"^(\S[^:]*): (.*(?:\n +.*)*)", body, re.MULTILINE)
            yield f"**{LISTS[title]}**"
            yield "\n".join(f"- `{name}`: {linked(' '.join(about.split()), own)}" for name, about in items)
        else:
            yield f"**{title}**\n\n{linked(body, own)}"
        if rest:
            yield linked(rest, own)


def _indented(body: str) -> tuple[str, str]:
    """Split off the indented beginning of a section, without its indentation."""
    lines = body.splitlines()
    end = next((at for at, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return inspect.cleandoc("\n".join(lines[:end])), "\n".join(lines[end:]).strip()


def linked(text: str, own: str) -> str:
    """Link names of ops to their sections, and names of pages to the pages."""
    pages_of = places()

    def link(found: re.Match[str]) -> str:
        name = found[1]
        known = name != own and name in pages_of
        return f"[`{name}`]({pages_of[name]}.md#{name})" if known else f"`{name}`"

    text = re.sub(r"``(.+?)``", r"`\1`", text)
    text = re.sub(r"`([^`\n]+)`", link, text)
    return re.sub(r"(?<![\w/`(])docs/(\w+)\.md", r"[\1](../\1.md)", text)
