"""The command `jitnorm warm`: its arguments. What it does is in `jitnorm.warm` and beside this module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from jitnorm.commands.completion import complete_config, complete_target
from jitnorm.commands.group import INTERRUPTED, Json, exit_unless

_WHAT = "What to warm"
_CHOICES = "Choices of --op; several values joined by commas are multiplied out"
_HOW = "How"


def _several(help: str, *names: str, panel: str = _CHOICES, complete: Callable[[str], list[str]] | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, autocompletion=complete)


def warm(
    family: Annotated[list[str], _several("A built-in list: llama3, qwen3, ..., default.", panel=_WHAT)] = [],  # noqa: B006
    model: Annotated[list[Path], _several("A model's config.json, or its folder.", panel=_WHAT)] = [],  # noqa: B006
    spec: Annotated[list[Path], _several("A specification in TOML.", panel=_WHAT)] = [],  # noqa: B006
    op: Annotated[list[str], _several("An op, such as rmsnorm_fp4quant.", panel=_WHAT)] = [],  # noqa: B006
    config: Annotated[
        list[str],
        _several(
            "A KernelConfig as text; what it leaves open is all that calls want.", panel=_WHAT, complete=complete_config
        ),
    ] = [],  # noqa: B006
    record: Annotated[list[Path], _several("A record of misses.", "--from", panel=_WHAT)] = [],  # noqa: B006
    hidden_size: Annotated[str, _several("Elements of a row.")] = "",
    input: Annotated[str, _several("Dtype of the input. Default: bfloat16.")] = "",
    weight: Annotated[str, _several("Dtype of the weight. Default: the input's.")] = "",
    quant: Annotated[str, _several("nvfp4, mxfp4, mxfp8, fp8, fp8_token, fp8_group, or a QuantSpec.")] = "",
    layout: Annotated[str, _several("Layout of scales: linear, 128x4, ...")] = "",
    global_scale: Annotated[str, _several("none, given, row or tensor.")] = "",
    row_dims: Annotated[str, _several("How many strides the rows need.")] = "",
    choice: Annotated[list[str], _several("Any other choice: NAME=VALUE.", "--set")] = [],  # noqa: B006
    format: Annotated[str | None, _several("Encodings of models, in place of their own.", panel=_WHAT)] = None,
    tensor_parallel: Annotated[str, _several("GPUs that share a model: 1,2,8.", panel=_WHAT)] = "",
    calls: Annotated[str, _several("few, many (2^26 elements, or 8192 short rows) or all.", panel=_WHAT)] = "",
    arch: Annotated[
        list[str],
        _several(
            "What to build for: sm_90a,sm_100a,cpu. Default: the GPUs here.", panel=_HOW, complete=complete_target
        ),
    ] = [],  # noqa: B006
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", min=1, help="Processes. Default: as fit.", rich_help_panel=_HOW)
    ] = None,
    backend: Annotated[str, _several("auto, nvrtc, nvcc or cxx.", panel=_HOW)] = "auto",
    timeout: Annotated[float, _several("Seconds that one kernel may take.", panel=_HOW)] = 900.0,
    ray: Annotated[bool, typer.Option("--ray", help="Build on a Ray cluster.", rich_help_panel=_HOW)] = False,
    ray_address: Annotated[str, _several("Its address; implies --ray. Default: the running one.", panel=_HOW)] = "",
    launcher: Annotated[bool, typer.Option(help="Warm the launcher, too.", rich_help_panel=_HOW)] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List, build nothing.", rich_help_panel=_HOW)] = False,
    json: Json = False,
) -> None:
    """Build kernels before they are needed.

    What is in the cache already is left alone, so an interrupted run goes on where it stopped.

    Exit code 0: all is warm. 1: something failed. 2: an argument is wrong. 130: interrupted.
    """
    from jitnorm.commands.warm import targets_of
    from jitnorm.commands.warm_view import show_plan, show_warm
    from jitnorm.warm.sources import Sources, read_choices

    named = {"hidden_size": hidden_size, "input": input, "weight": weight, "quant": quant, "layout": layout,
             "global_scale": global_scale, "row_dims": row_dims}  # fmt: skip
    sources = Sources(
        config, op, read_choices(named, choice, calls if op else ""), spec, model, family, record,
        None if format is None else [name for name in format.split(",") if name and name != "none"],
        calls or None, [int(part) for part in tensor_parallel.split(",") if part] or None,
    )  # fmt: skip
    sources.require_some()
    found = sources.jobs([] if sources.name_targets and not arch else targets_of(arch))
    left_out = sources.left_out()
    if dry_run:
        show_plan(found, left_out, as_json=json, backend=backend)
        return
    cluster = (ray_address or "auto") if ray or ray_address else None
    done = show_warm(
        found,
        left_out,
        as_json=json,
        backend=backend,
        workers=jobs,
        seconds=timeout,
        with_launcher=launcher,
        ray=cluster,
    )
    if done.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    exit_unless(done.is_warm)
