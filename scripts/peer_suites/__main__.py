"""Runs a peer's own tests against jitnorm: its imports lead to `jitnorm.compat`.

    python scripts/peer_suites flashinfer FOLDER [--every N] [--files TEXT] [-k TEXT]
    python scripts/peer_suites vllm FOLDER

FOLDER holds the peer's sources, `tests/` among them: an unpacked source distribution, or a clone of the repository
where the distribution has no tests. Nothing of the peer is imported but its tests. Tests that skip GPUs without FP4
find one that has it. Without a GPU, everything they put on ``cuda`` is on the CPU.

Prints how many tests passed, failed and were skipped, by file, and the reason of every failure, most frequent first.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest
from devices import blackwell_or_cpu
from names import PEERS, install
from report import Report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/peer_suites", description="Runs a peer's tests against jitnorm.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path, help="the peer's sources, with tests/")
    parser.add_argument("--every", type=int, default=1, help="run every Nth test alone")
    parser.add_argument("--files", default="", help="run the files whose name has this alone")
    parser.add_argument("-k", default="", help="as of pytest")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    peer = PEERS[options.peer]
    install(peer)
    files = [file for file in peer.files if options.files in file]
    os.chdir(options.folder)
    sys.path.insert(0, os.getcwd())  # tests import one another
    report = Report(options.every)
    flags = [
        "-q",
        "-rN",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "--tb=no",
        "-W",
        "ignore",
    ]
    flags += ["-k", options.k] if options.k else []
    with blackwell_or_cpu():
        pytest.main([*flags, *files], plugins=[report, *peer.plugins])
    report.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
