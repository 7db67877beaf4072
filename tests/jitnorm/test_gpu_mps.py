"""Several processes on a GPU through NVIDIA's Multi-Process Service: right bytes, and an end when the service ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_CONTROL = shutil.which("nvidia-cuda-mps-control")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(_CONTROL is None, reason="nvidia-cuda-mps-control is not installed")]

CLIENTS, SECONDS = 4, 60
# Calls until stdin ends, and once more after that; the last line says how the process fares.
PROGRAM = """
import select, sys
import torch, jitnorm
x = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0)).bfloat16()
weight = torch.ones(1024).bfloat16()
expected, (x, weight) = jitnorm.rmsnorm(x, weight), (x.cuda(), weight.cuda())
def call():
    assert torch.equal(jitnorm.rmsnorm(x, weight).cpu(), expected)
try:
    call()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        call()
    call()
except RuntimeError as error:
    print(type(error).__name__, flush=True)
else:
    print("right", flush=True)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the clients of a service of this test's own, which ends with it."""
    own = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(tmp_path)}
    (tmp_path / "pipe").mkdir()
    subprocess.run([str(_CONTROL), "-d"], env=own, check=True, timeout=SECONDS)
    try:
        yield own
    finally:
        _quit(own)


def _quit(environment: dict[str, str]) -> None:
    subprocess.run([str(_CONTROL)], input="quit -t 1\n", text=True, env=environment, timeout=SECONDS, check=False)


def _client(environment: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdin=pipe, stdout=pipe, text=True)


def _said(client: subprocess.Popen[str]) -> str:
    """The last that a client says once its stdin has ended."""
    try:
        return client.communicate(timeout=SECONDS)[0].splitlines()[-1]
    finally:
        client.kill()


def test_processes_that_share_a_gpu_get_right_bytes_after_one_of_them_has_ended(service: dict[str, str]) -> None:
    clients = [_client(service) for _ in range(CLIENTS)]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
    clients[0].terminate()
    clients[0].communicate(timeout=SECONDS)
    for client in clients[1:]:
        assert _said(client) == "right"
    assert _said(_client(service)) == "right", "a later one, too"


def test_the_end_of_the_service_is_an_error_or_goes_unnoticed_and_is_no_hang(service: dict[str, str]) -> None:
    client = _client(service)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    _quit(service)
    said = _said(client)
    assert said == "right" or said.endswith("Error"), said
