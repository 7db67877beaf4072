"""The folder that a quantized checkpoint is written to: which files are complete, and which run may resume.

Until the checkpoint is complete, a subfolder records which run writes it and holds the file being written. Files are
renamed into place once they are on the disk, the index and the configuration last.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jitnorm.cache.flock import locked_alone

WORK = ".jitnorm-quantize"
_RUN, _LOCK = "run.json", "lock"


class Output:
    """The folder that a run writes to.

    Args:
        folder: the folder; it may exist if it is empty, or if an interrupted run has left it.
        identity: what distinguishes this run from others, as JSON: input and options.
    """

    def __init__(self, folder: Path, identity: Any) -> None:
        self.folder, self._identity = folder, json.loads(json.dumps(identity))
        self._work = folder / WORK

    def scales(self) -> dict[str, float] | None:
        """The encode scales found by an interrupted run; None if there was none.

        Raises:
            ValueError: the folder holds something else, or a run with other input or options.
        """
        if not self.folder.exists():
            return None
        if not self.folder.is_dir():
            raise ValueError(f"out: {self.folder} is no folder; name one that does not exist")
        held = [path.name for path in self.folder.iterdir()]
        if not (self._work / _RUN).exists():
            if set(held) - {WORK}:
                raise ValueError(f"out: {self.folder} is not empty; name a folder that does not exist")
            return None
        run = json.loads((self._work / _RUN).read_text(encoding="utf-8"))
        if run["identity"] != self._identity:
            raise ValueError(
                f"out: {self.folder} holds an interrupted run with other input or options; repeat these, or delete it"
            )
        scales: dict[str, float] = run["scales"]
        return scales

    def check_space(self, size: int) -> None:
        """Raise OSError if the disk does not have that many free bytes."""
        existing = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if size > free:
            raise OSError(errno.ENOSPC, f"out: needs {size} bytes, but the disk of {existing} has {free}; free some")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and keep other runs out of it.

        Raises:
            RuntimeError: another run is writing here.
            ValueError: another run has written here meanwhile.
        """
        self._work.mkdir(parents=True, exist_ok=True)
        with locked_alone(self._work / _LOCK) as alone:
            if not alone:
                raise RuntimeError(
                    f"out: another process is writing {self.folder}; wait for it, or name another folder"
                )
            self.scales()
            yield

    def begin(self, scales: dict[str, float]) -> None:
        """Record the run and its scales, for resuming, and remove an earlier run's partial file."""
        for path in self._work.glob("*.part"):
            path.unlink()
        text = json.dumps({"identity": self._identity, "scales": scales})
        self.put(f"{WORK}/{_RUN}", text.encode())

    def has(self, name: str, size: int) -> bool:
        """Whether a file of this run is complete, which it is once renamed."""
        path = self.folder / name
        return path.is_file() and path.stat().st_size == size

    def part(self, name: str) -> Path:
        """Where to write a file until it is complete."""
        return self._work / f"{name.replace('/', '%')}.part"

    def finish(self, name: str) -> None:
        """Rename a file that is complete, and on the disk, into place."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.part(name), place)
        _sync(place.parent)

    def put(self, name: str, content: bytes) -> None:
        """Write a small file."""
        with self.part(name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.finish(name)

    def copy(self, source: Path, name: str) -> None:
        """Copy a file."""
        with source.open("rb") as file, self.part(name).open("wb") as out:
            shutil.copyfileobj(file, out)
            out.flush()
            os.fsync(out.fileno())
        self.finish(name)

    def end(self) -> None:
        """Remove the run's state: the checkpoint is complete."""
        shutil.rmtree(self._work)
        _sync(self.folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
