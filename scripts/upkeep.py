"""Measures the cost of a large cache: publishing above the budget, listing, `doctor`, pruning, concurrent publishers.

    python scripts/upkeep.py [--entries 50000] [--folder FOLDER]

Makes a cache of that many kernels of realistic sizes, each with its alias and lock file, written directly instead of by
`Store.publish`, which would sync each to disk. Commands run in separate processes, with their output going to a file;
their times include starting the interpreter. Disk space is counted in blocks, not in bytes.

The publishers share a separate, small cache, whose budget is a tenth of what they publish, while another process
measures it. The kernels that they have published count as no longer in use.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jitnorm.cache import Artifact, Entry, make_key
from jitnorm.cache.artifact import encode_manifest
from jitnorm.cache.index import Line, add_to_index
from jitnorm.cache.layout import MANIFEST, PAYLOAD, Layout
from jitnorm.kernels.config import KernelConfig

DAY = 86400
PUBLISHERS, PUBLISHED_BY_EACH = 8, 200

PUBLISH = """
import json, sys, time
from pathlib import Path
from jitnorm.cache import Store
from jitnorm.cache.uses import release_uses
sys.path.insert(0, {scripts!r})
from upkeep import kernel
store, times = Store(Path({root!r})), []
for number in range({count}):
    key, artifact = kernel(({seed}, number))
    began = time.perf_counter()
    store.publish(key, artifact)
    times.append((time.perf_counter() - began) * 1e3)
    release_uses(store.layout)
print(json.dumps(times))
"""


def kernel(seed: object) -> tuple[str, Artifact]:
    """A key and a stand-in for a kernel: 8 to 40 kB of code, 2 kB of manifest."""
    chance = random.Random(repr(seed))
    config = KernelConfig.parse(f"rmsnorm:hidden_size={64 * chance.randrange(1, 4096)},quant=e2m1/16/e4m3")
    manifest = {
        "kind": "kernel",
        "config": str(config),
        "target": chance.choice(["sm_90a", "sm_100a", "cpu"]),
        "backend": "nvrtc",
        "toolchain": "NVRTC 13.0.88",
        "flags": ["--gpu-architecture=sm_90a", "--std=c++17", "--device-int128"],
        "recipe": "r" * 1200,
        "source_key": make_key({"source": repr(seed)}),
        "source_sha256": make_key({"text": repr(seed)}),
    }
    return make_key({"kernel": repr(seed)}), Artifact(chance.randbytes(chance.randrange(8 << 10, 40 << 10)), manifest)


def fill(layout: Layout, count: int) -> None:
    """Write the files that `count` publishes leave, with the locks of their builds; the first were used longest ago."""
    for folder in layout.folders:
        folder.mkdir(mode=0o700, exist_ok=True)
    now = time.time()
    for number in range(count):
        key, artifact = kernel(number)
        place, alias = layout.entry(key), layout.alias(artifact.manifest["source_key"])
        place.mkdir(mode=0o700, parents=True)
        (place / PAYLOAD).write_bytes(artifact.payload)
        (place / MANIFEST).write_bytes(encode_manifest(key, artifact))
        used = now - 30 * DAY * (1 - number / count)
        os.utime(place, (used, used))
        alias.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        alias.write_text(f"{key}\n")
        layout.lock(key).touch(mode=0o600)
        entry = Entry(key, len(artifact.payload), now, artifact.manifest)
        add_to_index(layout, [Line.of(place.stat().st_ino, entry)])


def disk_space(root: Path) -> tuple[int, int]:
    """Bytes of all blocks below a folder, and the number of inodes."""
    space = inodes = 0
    for folder, _, names in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            try:
                space += os.lstat(path).st_blocks * 512
                inodes += 1
            except FileNotFoundError:
                pass
    return space, inodes


def environment(root: Path, budget: int | None = None) -> dict[str, str]:
    return {**os.environ, "JITNORM_CACHE_DIR": str(root), "JITNORM_CACHE_MAX_BYTES": str(budget or "none")}


def command(root: Path, *arguments: str) -> None:
    """Run a command, and print its time and memory."""
    program = [sys.executable, "-m", "jitnorm.cli", *arguments]
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(program, stdout=output, stderr=output, env=environment(root))
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode > 1:
            output.seek(0)
            raise SystemExit(output.read().decode())
        processor = f"{used.ru_utime:.2f} s user, {used.ru_stime:.2f} s system"
        show(
            "jitnorm " + " ".join(arguments), f"{seconds:.2f} s ({processor}), {used.ru_maxrss / 1024:.0f} MB of memory"
        )


def start_publisher(root: Path, budget: int | None, seed: int, count: int) -> subprocess.Popen[str]:
    program = PUBLISH.format(scripts=str(Path(__file__).parent), root=str(root), seed=seed, count=count)
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment(root, budget)
    )


def publish(name: str, root: Path, budget: int | None, seed: int) -> None:
    """Publish in a separate process, and print how long its callers waited."""
    output, _ = start_publisher(root, budget, seed, 21).communicate()
    first, *others = json.loads(output)
    text = f"the first {first:.0f} ms, others {statistics.median(others):.1f} ms (median), {max(others):.0f} ms (worst)"
    show(f"publish, {name}", text)


def publish_at_once(root: Path) -> None:
    """Let several processes publish into a small cache, and print how far it exceeds its budget."""
    layout = Layout(root)
    fill(layout, 1)
    empty = disk_space(root)[0]
    fill_size = 40 << 10  # about that of a kernel with its folders
    budget = empty + fill_size * PUBLISHERS * PUBLISHED_BY_EACH // 10
    processes = [start_publisher(root, budget, seed, PUBLISHED_BY_EACH) for seed in range(1, PUBLISHERS + 1)]
    most = 0
    while any(process.poll() is None for process in processes):
        most = max(most, disk_space(root)[0])
    times = sorted(time for process in processes for time in json.loads(process.communicate()[0]))
    show(
        f"{PUBLISHERS} concurrent publishers",
        f"up to {most / budget:.2f} times the budget, {max(0, most - budget) / fill_size:.1f} entries more; at the end "
        f"{disk_space(root)[0] / budget:.2f} times; a publish {statistics.median(times):.1f} ms (median), "
        f"{times[-1]:.0f} ms (worst)",
    )


def show(what: str, text: str) -> None:
    print(f"{what}: {text}", flush=True)


def show_space(when: str, root: Path) -> None:
    space, inodes = disk_space(root)
    show(when, f"{space / 1e6:.0f} MB on the disk, {inodes} inodes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to make the caches; default: the folder of tempfile"
    )
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        root = base / "large"
        fill(Layout(root), arguments.entries)
        show_space(f"{arguments.entries} entries", root)
        command(root, "doctor")  # builds the launcher, and asks compilers for their identities
        for each in (["cache", "ls"], ["cache", "ls", "--json"], ["doctor"], ["cache", "prune", "--dry-run"]):
            command(root, *each)
        (root / "v1" / "index.jsonl").unlink()
        command(root, "cache", "ls")
        publish("into an empty cache", base / "empty", None, 1)
        publish("no budget", root, None, 2)
        held = disk_space(root)[0]
        publish("within the budget", root, 2 * held, 3)
        publish("over the budget", root, held, 4)
        publish("over the budget, again", root, held, 5)
        command(root, "cache", "ls")
        command(root, "doctor")
        show_space("after publishing", root)
        command(root, "cache", "prune", "--max-bytes", str(int(held * 0.9)))
        command(root, "cache", "prune", "--max-bytes", str(held // 2))
        show_space("after pruning to half", root)
        command(root, "cache", "prune", "--max-bytes", "1")
        show_space("after pruning to nothing", root)
        publish_at_once(base / "small")
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
