"""Working folders of compilers, each for one compilation and removed after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

# Creates an empty folder, and removes it with its contents.
Workplace = Callable[[], AbstractContextManager[Path]]

_Result = TypeVar("_Result")


class WorkplaceError(RuntimeError):
    """No folder is usable for a compiler to work in."""


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A workplace in the system's temporary folder, or in another parent."""
    import shutil
    import tempfile

    owner, folder = os.getpid(), tempfile.mkdtemp(prefix="jitnorm-", dir=parent)
    try:
        yield Path(folder)
    finally:
        if os.getpid() == owner:  # a forked child that ends first must not remove it
            shutil.rmtree(folder, ignore_errors=True)


DEFAULT_WORKPLACES: tuple[Workplace, ...] = (temporary_folder,)


def work_in(workplaces: Sequence[Workplace], work: Callable[[Path], _Result]) -> _Result:
    """Run ``work`` in the first workplace that can be created and has space, and return its result.

    Args:
        workplaces: where to work, in order of preference.
        work: takes the folder; raises OSError only if another folder might work.

    Raises:
        WorkplaceError: none is usable.
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
        f"no usable working folder ({'; '.join(problems)}): free some space, or set TMPDIR to a folder with space"
    )
