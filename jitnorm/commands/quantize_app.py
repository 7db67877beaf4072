"""The arguments of `jitnorm quantize`; `quantize` in this folder implements it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jitnorm.commands.arguments import HOW, INTERRUPTED, Json, option

_WHAT = "What to write"


def quantize(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="Folder of a checkpoint: config.json and safetensors files.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to; the run it holds is resumed.")],
    format: Annotated[str, option("nvfp4, mxfp4, fp8 or fp8-block.", panel=_WHAT)],
    layout: Annotated[
        str, option("Names and shapes of tensors: compressed-tensors or modelopt.", panel=_WHAT)
    ] = "compressed-tensors",
    ignore: Annotated[
        list[str],
        option(
            "Modules to leave as they are, besides heads, embeddings, norms and routers: 'visual.*', or re: and a "
            "regular expression. May be repeated.",
            panel=_WHAT,
            metavar="PATTERN",
        ),
    ] = [],  # noqa: B006
    device: Annotated[str, option("cpu or cuda, which give the same bytes.", panel=HOW)] = "cpu",
    threads: Annotated[
        int | None,
        option(
            "Threads that encode. Default: as many as there are cores, at most 8.", "-j", "--jobs", panel=HOW, min=1
        ),
    ] = None,
    ray: Annotated[
        bool, option("Spread the files over a Ray cluster that shares the folders.", "--ray", panel=HOW)
    ] = False,
    ray_address: Annotated[
        str, option("Address of the Ray cluster; implies --ray. Default: the running cluster.", panel=HOW)
    ] = "",
    dry_run: Annotated[
        bool, option("List what would happen to each matrix, and write nothing.", "--dry-run", panel=HOW)
    ] = False,
    json: Json = False,
) -> None:
    """Quantize the linear layers of a checkpoint, for engines such as vLLM.

    Reads and writes in constant memory. Everything is checked before the first byte is written, including all weights
    for NaN. Repeat an interrupted run to resume it; config.json, written last, marks the checkpoint as complete.

    Exit code 0: the checkpoint is complete. 1: something failed. 2: an argument or the checkpoint is invalid. 130:
    interrupted.
    """
    from jitnorm.checkpoint.layouts import layout_of
    from jitnorm.commands.quantize import show_plan, show_quantize

    chosen = layout_of(format, layout)
    if dry_run:
        show_plan(source, chosen, ignore, as_json=json)
        return
    cluster = (ray_address or "auto") if ray or ray_address else None
    is_whole = show_quantize(
        source, out, chosen, as_json=json, ignore=ignore, device=device, threads=threads, ray=cluster
    )
    if not is_whole:
        raise typer.Exit(INTERRUPTED)
