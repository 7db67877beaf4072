"""The command line as its users meet it: output, exit codes, and errors as one line on stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import generate
from jitnorm.kernels.target import TARGET_NAMES, Target
from typer.main import get_command
from typer.testing import CliRunner, Result

from jitnorm.cli import app
from jitnorm.store import user_cache, user_store

SECONDS = 120.0


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, for what a process does once: opening the cache, loading the launcher."""
    return subprocess.run(
        [sys.executable, "-m", "jitnorm.cli", *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, for this process and those that it starts."""
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "cache"))
    for opened in (user_store, user_cache):
        opened.cache_clear()
    yield tmp_path / "cache"
    for opened in (user_store, user_cache):
        opened.cache_clear()


def commands_below(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    """The names of a command and of all below it."""
    yield names
    for name, child in getattr(command, "commands", {}).items():
        yield from commands_below(child, *names, name)


COMMANDS = list(commands_below(get_command(app)))
# A proof and a source are for people alone; groups only print their help.
WITHOUT_JSON = {(), ("cache",), ("demo",), ("source",)}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_flags_take_no_value_on_the_help_page(command: tuple[str, ...]) -> None:
    assert "bool" not in invoke(*command, "--help").output.lower()


def test_targets_have_the_same_names_wherever_they_are_asked_for() -> None:
    found = []
    for command in COMMANDS:
        each: Any = get_command(app)
        for name in command:
            each = each.commands[name]
        found += [parameter.opts for parameter in each.params if {"--target", "--arch"} & {*parameter.opts}]
    assert len(found) == 9
    assert all(names == ["--target", "--arch"] for names in found)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("source", "rmsnrm:hidden_size=64", "--arch", "cpu"), "rmsnorm"),
        (("source", "rmsnorm:hidden_size=64,quant=nvpf4", "--arch", "cpu"), "nvfp4"),
        (("source", "rmsnorm:hidden_size=64,imput=float16", "--arch", "cpu"), "input"),
        (("source", "rmsnorm:hidden_size=64,input=bflot16", "--arch", "cpu"), "bfloat16"),
        (("source", "rmsnorm:hidden_size=64", "--target", "sm_90"), "sm_90a"),
        (("source", "rmsnorm:hidden_size=64", "--target", "cpu", "--backend", "nvrct"), "nvrtc"),
        (("warm", "--op", "rmsnorm_fp4qant", "--hidden-size", "64", "--arch", "cpu"), "rmsnorm_fp4quant"),
        (("warm", "--op", "rmsnorm", "--hidden-size", "64", "--set", "residul=true", "--arch", "cpu"), "residual"),
        (("warm", "--preset", "lama3", "--arch", "cpu"), "llama3"),
        (("bench", "--shapes", "anchor", "--device", "cpu"), "anchors"),
        (("bench", "--by", "jitnrom", "--device", "cpu"), "jitnorm"),
        (("cache", "ls", "--sort", "sise"), "size"),
        (("cache", "ls", "--kind", "kernels"), "kernel"),
        (("quantize", "in", "out", "--format", "fp8_block"), "fp8-block"),
    ],
)
def test_misspelled_names_are_recognized(cache: Path, arguments: tuple[str, ...], meant: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(f"did you mean {meant!r}?"), result.stderr


def test_a_configuration_may_name_its_encoding(cache: Path) -> None:
    named, spelled = (
        invoke("source", f"rmsnorm:hidden_size=64,quant={quant}", "--arch", "cpu")
        for quant in ("nvfp4", "e2m1/16/e4m3")
    )
    assert named.exit_code == 0
    assert named.stdout == spelled.stdout


def test_a_model_of_the_hub_has_to_be_downloaded() -> None:
    result = invoke("warm", "--model", "Qwen/Qwen3-8B", "--arch", "cpu")
    assert result.exit_code == 2
    assert "hf download Qwen/Qwen3-8B --local-dir FOLDER" in result.stderr


def test_help_keeps_the_brackets_of_extras() -> None:
    assert 'pip install "jitnorm[wheels]"' in " ".join(invoke("wheel", "--help").output.split())


@pytest.mark.parametrize("command", sorted({*COMMANDS} - WITHOUT_JSON), ids=" ".join)
def test_every_command_with_results_has_json(command: tuple[str, ...]) -> None:
    found: Any = get_command(app)
    for name in command:
        found = found.commands[name]
    assert "--json" in {option for parameter in found.params for option in parameter.opts}


def test_help_loads_neither_numpy_nor_tvm_ffi_nor_what_commands_do() -> None:
    code = (
        "import sys\n"
        "from jitnorm.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'tvm_ffi', 'torch', 'fsspec', 'cryptography', 'jitnorm.reference', 'jitnorm.warm',"
        " 'jitnorm.bench', 'matplotlib'}\n"
        "light = {'jitnorm.commands.arguments'}\n"
        "loaded = {n for n in sys.modules if n.startswith('jitnorm.commands.') and not n.endswith('_app')} - light\n"
        "sys.exit(', '.join(loaded | heavy & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS)
    assert (result.returncode, result.stderr) == (0, "")


def test_version_is_that_of_the_package() -> None:
    import jitnorm

    assert invoke("--version").output == f"jitnorm {jitnorm.__version__}\n"


def test_the_demo_proves_its_bits_and_finds_its_kernels_in_the_cache_the_second_time(cache: Path) -> None:
    first, second = run("demo", "--cpu"), run("demo", "--cpu")
    for result in (first, second):
        assert result.returncode == 0, result.stderr
        assert result.stdout.count(" exact ") == 4
        assert "DIFFER" not in result.stdout
    assert "(4 built now, 0 from the cache)" in first.stdout
    assert "(0 built now, 4 from the cache)" in second.stdout
    kernels = [entry for entry in user_store().entries() if entry.manifest["kind"] == "kernel"]
    assert len(kernels) == 4, "the op must have run the kernels that the demo timed"


def test_the_demo_without_a_compiler_says_what_to_install(cache: Path) -> None:
    result = run("demo", CXX="no-such-compiler")
    assert result.returncode == 1
    assert result.stderr.startswith("error: a C++ compiler was not found")
    assert "remedy: install g++" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_source_is_exactly_what_the_generator_gives(target: str) -> None:
    text = "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/128x4/given"
    result = invoke("source", text, "--target", target)
    assert result.exit_code == 0
    assert result.stdout == generate(KernelConfig.parse(text), Target(target)).text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["softmax:hidden_size=64", "--target", "cpu"], "error: op: is 'softmax'"),
        (["rmsnorm:hidden=64", "--target", "cpu"], "error: config: cannot read 'hidden=64'"),
        (["rmsnorm:hidden_size=64", "--target", "sm_70"], "error: target: 'sm_70' is not known"),
        (["rmsnorm:hidden_size=64,pdl=true", "--target", "sm_80"], "error: pdl: is True"),
    ],
)
def test_a_wrong_argument_is_one_line_on_stderr_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = invoke("source", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_cache_that_others_can_write_to_is_one_line_on_stderr_and_exit_code_1(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    result = invoke("cache", "ls")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: the cache folder {cache} has mode 0777")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("JITNORM_REMOTE_MODE", "write"), ("JITNORM_CACHE_TRUST", "all"), ("JITNORM_CACHE_MAX_BYTES", "lots")],
)
def test_a_variable_with_a_bad_value_is_one_line_on_stderr_and_exit_code_1(
    cache: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    result = invoke("cache", "ls")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: {name} is {value!r}; allowed ")
    assert result.stderr.count("\n") == 1


def test_where_nobody_reads_there_is_no_traceback(cache: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jitnorm.cli", "source", "rmsnorm:hidden_size=64", "--target", "cpu"]
    try:
        result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def test_an_unforeseen_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("jitnorm.commands.listing.list_cache", fail)
    assert isinstance(invoke("cache", "ls").exception, ZeroDivisionError)


def test_the_doctor_fails_where_nothing_can_be_built_and_says_why(cache: Path) -> None:
    result = run("doctor", "--json", CXX="no-such-compiler")
    report = json.loads(result.stdout)
    assert result.returncode == 1
    assert report["can_build"] is False
    assert "install g++" in report["launcher_problem"]
    assert "cpu" not in report["targets"]
