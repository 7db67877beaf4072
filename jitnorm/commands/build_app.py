"""The arguments of `jitnorm warm` and `jitnorm wheel`; `warm` and `wheel` in this folder implement them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jitnorm.commands.arguments import (
    HOW,
    INTERRUPTED,
    Jobs,
    Json,
    complete_config,
    exit_unless,
    option,
    target_option,
)

_WARMED = "What to warm"
_CHOICES = "Choices of --op; comma-separated values are multiplied out"
_PACKED = "What to pack"
_OF_CONFIG = "A KernelConfig as text; fields that it omits cover all that calls use."
_OF_SPEC = "A specification in TOML."
_OF_RECORD = "A record of misses."


def warm(
    preset: Annotated[
        list[str], option("A built-in list of models: llama3, qwen3, ..., or default.", panel=_WARMED)
    ] = [],  # noqa: B006
    model: Annotated[list[Path], option("A model's config.json, or its folder.", panel=_WARMED)] = [],  # noqa: B006
    spec: Annotated[list[Path], option(_OF_SPEC, panel=_WARMED)] = [],  # noqa: B006
    op: Annotated[list[str], option("An op, such as rmsnorm_fp4quant.", panel=_WARMED)] = [],  # noqa: B006
    config: Annotated[list[str], option(_OF_CONFIG, panel=_WARMED, complete=complete_config)] = [],  # noqa: B006
    record: Annotated[list[Path], option(_OF_RECORD, "--from", panel=_WARMED)] = [],  # noqa: B006
    hidden_size: Annotated[str, option("Elements per row.", panel=_CHOICES)] = "",
    input: Annotated[str, option("Dtype of the input. Default: bfloat16.", panel=_CHOICES)] = "",
    weight: Annotated[str, option("Dtype of the weight, or none. Default: the input's.", panel=_CHOICES)] = "",
    quant: Annotated[
        str, option("nvfp4, mxfp4, mxfp8, fp8, fp8_token, fp8_group, int8_token, ..., or a QuantSpec.", panel=_CHOICES)
    ] = "",
    layout: Annotated[str, option("Layout of the scales: linear, 128x4, ...", panel=_CHOICES)] = "",
    global_scale: Annotated[str, option("none, given, row or tensor.", panel=_CHOICES)] = "",
    row_dims: Annotated[str, option("Number of strides needed to walk the rows.", panel=_CHOICES)] = "",
    choice: Annotated[list[str], option("Any other choice: NAME=VALUE.", "--set", panel=_CHOICES)] = [],  # noqa: B006
    format: Annotated[str | None, option("Encodings to use instead of a model's own.", panel=_WARMED)] = None,
    tensor_parallel: Annotated[str, option("Number of GPUs that share a model: 1,2,8.", panel=_WARMED)] = "",
    row_class: Annotated[str, option("Classes of rows: few, some, usual, many. Default: all.", panel=_WARMED)] = "",
    arch: Annotated[
        list[str],
        target_option("Targets to build for: sm_90a,sm_100a,cpu. Default: this machine's GPUs.", HOW),
    ] = [],  # noqa: B006
    jobs: Jobs = None,
    backend: Annotated[str, option("auto, nvrtc, nvcc, cute, cxx or zig.", panel=HOW)] = "auto",
    timeout: Annotated[float, option("Time limit for each kernel, in seconds.", panel=HOW)] = 900.0,
    ray: Annotated[bool, option("Build on a Ray cluster.", "--ray", panel=HOW)] = False,
    ray_address: Annotated[
        str, option("Address of the Ray cluster; implies --ray. Default: the running cluster.", panel=HOW)
    ] = "",
    launcher: Annotated[bool, option("Also warm the launcher.", panel=HOW)] = True,
    dry_run: Annotated[bool, option("List the kernels and build nothing.", "--dry-run", panel=HOW)] = False,
    json: Json = False,
) -> None:
    """Build kernels before they are needed.

    Kernels that the cache already holds are skipped, so an interrupted run resumes where it stopped.

    Exit code 0: everything is warm. 1: something failed. 2: an argument is invalid. 130: interrupted.
    """
    from jitnorm.commands.warm import show_plan, show_warm, targets_of
    from jitnorm.warm.sources import Sources, read_choices

    named = {"hidden_size": hidden_size, "input": input, "weight": weight, "quant": quant, "layout": layout,
             "global_scale": global_scale, "row_dims": row_dims, "row_class": row_class if op else ""}  # fmt: skip
    sources = Sources(
        config, op, read_choices(named, choice), spec, model, preset, record,
        None if format is None else [name for name in format.split(",") if name and name != "none"],
        row_class.split(",") if row_class else None, [int(part) for part in tensor_parallel.split(",") if part] or None,
    )  # fmt: skip
    sources.require_some()
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout: is {timeout:g}; allowed are numbers of seconds above 0")
    found = sources.jobs([] if sources.name_targets and not arch else targets_of(arch))
    left_out = sources.left_out()
    if dry_run:
        show_plan(found, left_out, as_json=json, backend=backend)
        return
    cluster = (ray_address or "auto") if ray or ray_address else None
    done = show_warm(
        found, left_out, as_json=json, backend=backend, workers=jobs, seconds=timeout, with_launcher=launcher,
        ray=cluster,
    )  # fmt: skip
    if done.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    exit_unless(done.is_warm)


def wheel(
    arch: Annotated[
        list[str],
        target_option("Targets to build for, each with its own wheel: sm_90a,sm_100a,cpu.", HOW),
    ] = [],  # noqa: B006
    spec: Annotated[list[Path], option(_OF_SPEC, panel=_PACKED)] = [],  # noqa: B006
    preset: Annotated[
        list[str], option("A built-in list of models. Default: the one named default.", panel=_PACKED)
    ] = [],  # noqa: B006
    config: Annotated[list[str], option(_OF_CONFIG, panel=_PACKED, complete=complete_config)] = [],  # noqa: B006
    record: Annotated[list[Path], option(_OF_RECORD, "--from", panel=_PACKED)] = [],  # noqa: B006
    own: Annotated[
        Path | None, option("Add launchers to this pure wheel of jitnorm instead of packing kernels.", panel=_PACKED)
    ] = None,
    output: Annotated[Path, option("Folder to write the wheels to.", "-o", "--output", panel=HOW)] = Path("dist"),
    machine: Annotated[list[str], option("x86_64 or aarch64. Default: x86_64.", panel=HOW)] = [],  # noqa: B006
    headers: Annotated[
        list[Path],
        option("Folder of TVM-FFI's headers to build a launcher for. Default: the installed one.", panel=HOW),
    ] = [],  # noqa: B006
    jobs: Jobs = None,
    backend: Annotated[str, option("auto, nvrtc or nvcc.", panel=HOW)] = "auto",
    json: Json = False,
) -> None:
    r"""Build wheels of kernels, such as jitnorm-kernels-sm90a, for machines without a compiler.

    The same kernels, compilers and version give the same bytes. Requires pip install "jitnorm\[wheels]".

    Exit code 0: all wheels are written. 1: something failed, or a wheel is too large. 2: an argument is invalid.
    """
    from jitnorm.commands.wheel import build_kernels_wheel, build_own_wheels, show, targets_of_wheels
    from jitnorm.tuning import without_user_tables
    from jitnorm.warm.sources import Sources

    machines = machine or ["x86_64"]
    if own is not None:
        show(build_own_wheels(own, output, machines=machines, headers=headers), as_json=json)
        return
    presets = preset or ([] if spec or config or record else ["default"])
    sources = Sources(configs=config, specs=spec, presets=presets, records=record)
    with without_user_tables():
        pairs = [(sources.jobs([target]), each) for target in targets_of_wheels(arch) for each in machines]
    show(
        [
            build_kernels_wheel(found, output, machine=each, workers=jobs, backend=backend, headers=headers)
            for found, each in pairs
        ],
        as_json=json,
    )
