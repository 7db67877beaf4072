"""The command `jitnorm wheel`: its arguments. What it does is in `jitnorm.wheel` and beside this module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jitnorm.commands.completion import complete_config, complete_target
from jitnorm.commands.group import Json

_WHAT = "What is in them"
_HOW = "How"


def _several(help: str, *names: str, panel: str, complete: Any = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, autocompletion=complete)


def wheel(
    arch: Annotated[
        list[str],
        _several("What to build for: sm_90a,sm_100a,cpu; a wheel each.", panel=_HOW, complete=complete_target),
    ] = [],  # noqa: B006
    spec: Annotated[list[Path], _several("A specification in TOML.", panel=_WHAT)] = [],  # noqa: B006
    family: Annotated[list[str], _several("A built-in list. Default: default.", panel=_WHAT)] = [],  # noqa: B006
    config: Annotated[
        list[str],
        _several(
            "A KernelConfig as text; what it leaves open is all that calls want.", panel=_WHAT, complete=complete_config
        ),
    ] = [],  # noqa: B006
    record: Annotated[list[Path], _several("A record of misses.", "--from", panel=_WHAT)] = [],  # noqa: B006
    own: Annotated[
        Path | None, typer.Option(help="Instead: jitnorm's own pure wheel, to add launchers to.", rich_help_panel=_WHAT)
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the wheels.", rich_help_panel=_HOW)] = Path(
        "dist"
    ),
    machine: Annotated[list[str], _several("x86_64 or aarch64. Default: x86_64.", panel=_HOW)] = [],  # noqa: B006
    headers: Annotated[
        list[Path], _several("TVM-FFI's headers, for a launcher each. Default: the installed.", panel=_HOW)
    ] = [],  # noqa: B006
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", min=1, help="Processes. Default: as fit.", rich_help_panel=_HOW)
    ] = None,
    backend: Annotated[str, _several("auto, nvrtc or nvcc.", panel=_HOW)] = "auto",
    json: Json = False,
) -> None:
    r"""Build wheels of kernels, jitnorm-kernels-sm90a and its like, for machines that have no compiler.

    The same kernels, compilers and version give the same bytes. Needs pip install "jitnorm\[wheels]".

    Exit code 0: all are written. 1: something failed, or a wheel is too large. 2: an argument is wrong.
    """
    from jitnorm.commands.wheel import build_kernels_wheel, build_own_wheels, show, targets_of_wheels
    from jitnorm.tuning import only_shipped_tables
    from jitnorm.warm.sources import Sources

    machines = machine or ["x86_64"]
    if own is not None:
        show(build_own_wheels(own, output, machines=machines, headers=headers), as_json=json)
        return
    families = family or ([] if spec or config or record else ["default"])
    sources = Sources(configs=config, specs=spec, families=families, records=record)
    with only_shipped_tables():
        pairs = [(sources.jobs([target]), each) for target in targets_of_wheels(arch) for each in machines]
    show(
        [
            build_kernels_wheel(found, output, machine=each, workers=jobs, backend=backend, headers=headers)
            for found, each in pairs
        ],
        as_json=json,
    )
