"""Disks without space or inodes: what fits is stored whole, the rest is used from memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from fire.trial import PROCESS_SECONDS, WORKER, Trial, Unavailable

_MOUNTED = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"', "sh"]


def attack(trial: Trial) -> None:
    """Twelve entries on a file system that is too small for them, in bytes or in inodes."""
    disk = trial.folder / "disk"
    disk.mkdir()
    size = trial.chance.choice([20_000, 100_000, 400_000])
    few_inodes = trial.chance.random() < 0.5
    room = (
        "nr_inodes=" + str(trial.chance.randint(8, 60)) if few_inodes else f"size={trial.chance.randint(1, 9) * size}"
    )
    mounted = [*_MOUNTED, room, str(disk)]
    if shutil.which("unshare") is None or subprocess.run([*mounted, "true"], capture_output=True).returncode:
        raise Unavailable("file systems cannot be mounted here")
    arguments = json.dumps({"root": str(disk / "cache"), "count": 12, "size": size})
    with trial.bounded(10):
        done = subprocess.run(
            [*mounted, sys.executable, str(WORKER), "fill_a_disk", arguments],
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    stored, intact, unfinished = map(int, done.stdout.split()[-3:])
    assert stored == intact, f"{stored} entries, {intact} of them intact, with {room}"
    assert not unfinished, f"{unfinished} private folders left, with {room}"
