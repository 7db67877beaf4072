"""Completions by Tab, and their low cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cache_entries import ENTRIES, SM90
from jitnorm.cache import Store
from jitnorm.kernels.config_rules import OPS
from jitnorm.kernels.target import TARGET_NAMES

from jitnorm.commands.arguments import complete_config, complete_key, complete_target

SECONDS = 60


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", [f"{op}:hidden_size=" for op in OPS]),
        ("rms", ["rmsnorm:hidden_size="]),
        ("rmsnorm:hidden_size=64,inp", ["rmsnorm:hidden_size=64,input="]),
        ("rmsnorm:in", ["rmsnorm:input=", "rmsnorm:inverse_global_scale="]),
        ("rmsnorm:pdl=true,pd", []),
        ("softmax", []),
    ],
)
def test_configurations(typed: str, offered: list[str]) -> None:
    assert complete_config(typed) == offered


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("", list(TARGET_NAMES)), ("sm_9", ["sm_90a"]), ("cpu,sm_9", ["cpu,sm_90a"]), ("gpu", [])],
)
def test_targets(typed: str, offered: list[str]) -> None:
    assert complete_target(typed) == offered


def test_keys_of_the_users_cache(store: Store) -> None:
    assert complete_key("") == sorted(ENTRIES)
    assert complete_key(SM90[:9]) == [SM90]


def test_no_keys_where_there_is_no_cache(folder: Path) -> None:
    assert complete_key("") == []
    assert not folder.exists()


def press_tab(shell: str, line: str) -> subprocess.CompletedProcess[str]:
    """Run the shell's completion script; the program also reports which heavy modules it has loaded."""
    code = (
        "import sys, atexit\n"
        "heavy = {'numpy', 'tvm_ffi', 'torch', 'fsspec', 'cryptography', 'jitnorm.reference', 'jitnorm.commands.why'}\n"
        "atexit.register(lambda: print(*(heavy & set(sys.modules)), file=sys.stderr, end=''))\n"
        "from jitnorm.cli import app\n"
        "app(prog_name='jitnorm')"
    )
    words = line.split(" ")
    variables = {
        "_JITNORM_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
    }
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("jitnorm ca", "cache"),
        ("jitnorm cache ver", "verify"),
        ("jitnorm source --target sm_9", "sm_90a"),
        ("jitnorm source rms", "rmsnorm"),
        (f"jitnorm cache info {SM90[:6]}", SM90),
    ],
)
def test_the_shells_get_words_and_nothing_heavy_is_loaded(store: Store, shell: str, line: str, offered: str) -> None:
    result = press_tab(shell, line)
    assert offered in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_for_shells_can_be_had(shell: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from jitnorm.cli import app\napp(prog_name='jitnorm')", "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert f"_JITNORM_COMPLETE=complete_{shell}" in result.stdout
