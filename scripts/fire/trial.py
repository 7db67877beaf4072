"""One trial of an attack: its folder, its random numbers, and the invariants that hold after every attack."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitnorm.cache import Artifact, Cache, CacheError, Store
from jitnorm.cache.check import verify
from jitnorm.cache.space import prune

WORKER = Path(__file__).parents[2] / "tests" / "cache" / "worker.py"
# How much longer than its bound a wait may take on a machine with more work than cores.
SLACK_SECONDS = 8.0
# How long a process that the trial starts may take: more than any bound, so only a process that hangs exceeds it.
PROCESS_SECONDS = 120.0


class Unavailable(Exception):  # noqa: N818 - no error: the machine lacks what an attack needs
    """An attack cannot be made on this machine."""


@dataclass
class Trial:
    """The means of an attack.

    Attributes:
        folder: where all that it makes must lie; ``outside`` in it stands for the rest of the disk.
        chance: the source of everything random.
        waits: the seconds that each answer took beyond its build.
        excused: whether an error of the cache is an answer, as where strangers can write.
    """

    folder: Path
    chance: random.Random
    waits: list[float] = field(default_factory=list)
    excused: bool = False

    @property
    def root(self) -> Path:
        """The folder of the cache under attack."""
        return self.folder / "cache"

    def key(self) -> str:
        """A new key."""
        return hashlib.sha256(self.chance.randbytes(16)).hexdigest()

    @contextlib.contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """Measure a wait, which must not exceed its bound."""
        began = time.monotonic()
        yield
        self.note_wait(time.monotonic() - began, seconds)

    def note_wait(self, waited: float, seconds: float) -> None:
        """Record a wait, which must not have exceeded its bound."""
        self.waits.append(waited)
        assert waited <= seconds + SLACK_SECONDS, f"waited {waited:.1f} s; the bound is {seconds:g} s"

    def ask(self, cache: Store | Cache, key: str, *, timeout: float = 5.0, bound: float | None = None) -> None:
        """Ask for an artifact: the answer must be the right one, or an error from docs/errors.md."""
        cache = Cache(cache) if isinstance(cache, Store) else cache
        with self.bounded(2 * timeout if bound is None else bound):
            try:
                found = cache.load_or_build(key, lambda: artifact_of(key), timeout=timeout)
            except CacheError as error:
                if self.excused:
                    return
                raise AssertionError("an error instead of the artifact") from error
        assert found == artifact_of(key), "wrong bytes"

    @contextlib.contextmanager
    def worker(self, task: str, **arguments: Any) -> Iterator[subprocess.Popen[str]]:
        """A process of the tests of the cache, which does not outlive the trial."""
        command = [sys.executable, str(WORKER), task, json.dumps(arguments, default=str)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
            try:
                yield process
            finally:
                process.kill()

    def output_of(self, task: str, **arguments: Any) -> str:
        """The output of such a process, which must succeed."""
        with self.worker(task, **arguments) as process:
            output, errors = process.communicate(timeout=PROCESS_SECONDS)
        assert process.returncode == 0, errors
        return str(output)

    def output_with(self, source: str, module: str, **arguments: Any) -> str:
        """The output of a module, run with the root and other arguments and with a library in C preloaded.

        Raises:
            Unavailable: there is no C compiler.
        """
        compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
        if compiler is None:
            raise Unavailable("there is no C compiler")
        library = self.folder / "preloaded.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_name(source), "-ldl"]
        subprocess.run(command, check=True)
        path = os.pathsep.join(filter(None, sys.path))
        with self.bounded(30):
            done = subprocess.run(
                [sys.executable, "-m", module, json.dumps({"root": str(self.root), **arguments})],
                env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=PROCESS_SECONDS,
            )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


def artifact_of(key: str) -> Artifact:
    """The artifact that belongs to a key."""
    return Artifact(random.Random(key).randbytes(4096), {"of": key, "source_key": source_of(key)})


def source_of(key: str) -> str:
    """The source that the artifact of a key has been built from."""
    return hashlib.sha256(key.encode()).hexdigest()


def evil(key: str) -> Artifact:
    """An artifact that a stranger would have loaded in place of `artifact_of`: whole, and valid but for its origin."""
    return Artifact(b"evil" * 1024, dict(artifact_of(key).manifest))


def assert_sound(trial: Trial) -> None:
    """The cache is usable and clean: what is stored is whole, nothing is half-written, nothing lies outside."""
    store = Store(trial.root)
    key = trial.key()
    store.publish(key, artifact_of(key))
    assert store.load(key) == artifact_of(key), "what is published cannot be loaded"
    broken = [(each.key, each.problem) for each in verify(store, repair=True) if not each.intact and each.is_there]
    assert not [each for each in broken if "cannot be read" in str(each[1])], broken
    private = list(store.layout.private.iterdir())
    assert not private, f"left behind: {private}"
    prune(store, 1 << 40)  # which removes locks that nobody holds
    locks = [path for path in store.layout.locks.glob("*") if path != store.layout.prune_lock]
    assert not locks, f"left behind: {locks}"
    outside = list((trial.folder / "outside").iterdir())
    assert not outside, f"written outside of the cache: {outside}"
