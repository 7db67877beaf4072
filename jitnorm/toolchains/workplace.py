"""Folders that compilers work in: each for one compilation, removed after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

# Makes an empty folder, and removes it with all that is in it.
Workplace = Callable[[], AbstractContextManager[Path]]

_Result = TypeVar("_Result")


class WorkplaceError(RuntimeError):
    """There is no folder that a compiler could work in."""


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A workplace among the system's temporary files, or in another folder."""
    import shutil
    import tempfile

    owner, folder = os.getpid(), tempfile.mkdtemp(prefix="jitnorm-", dir=parent)
    try:
        yield Path(folder)
    finally:
        if os.getpid() == owner:  # a forked child that ends first leaves it alone
            shutil.rmtree(folder, ignore_errors=True)


DEFAULT_WORKPLACES: tuple[Workplace, ...] = (temporary_folder,)


def work_in(workplaces: Sequence[Workplace], work: Callable[[Path], _Result]) -> _Result:
    """What ``work`` returns, in the first of the workplaces that can be made and has the space.

    Args:
        workplaces: where to work, the best first.
        work: takes the folder; raises OSError only for what another folder may be better for.

    Raises:
        WorkplaceError: none will do.
    """
    problems = []
    for workplace in workplaces:
        place = "temporary files"
        try:
            with workplace() as folder:
                place = str(folder.parent)
                return work(folder)
        except OSError as error:
            problems.append(f"{place}: {error.strerror or error}")
    raise WorkplaceError(
        f"no folder to work in ({'; '.join(problems)}): free some space, or set TMPDIR to a folder that has it"
    )
