from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.kernels.target import Target

from jitnorm.toolchains import CompileError
from jitnorm.toolchains.process import ask, compile_file, run, time_limit

MakeProgram = Callable[[str, str], Path]


def compile_with(program: Path, work_dir: Path, source: str = "source") -> bytes:
    return compile_file(
        [str(program)],
        source=source,
        source_name="kernel.cpp",
        output_name="kernel.so",
        toolchain="fake",
        target=Target("cpu"),
        work_dir=work_dir,
    )


def test_the_compiler_reads_the_source_and_makes_the_output_in_its_own_folder(
    make_program: MakeProgram, work_dir: Path
) -> None:
    program = make_program("compiler", 'pwd > kernel.so; echo "$TMPDIR" >> kernel.so; cat kernel.cpp >> kernel.so')
    folder, temporary, text = compile_with(program, work_dir, "int é;").decode().splitlines()
    assert Path(folder).parent == work_dir
    assert temporary == folder
    assert text == "int é;"
    assert list(work_dir.iterdir()) == []


def test_a_failing_compiler_gives_its_log_and_leaves_nothing(make_program: MakeProgram, work_dir: Path) -> None:
    program = make_program("compiler", "echo out; echo err >&2; echo partial > kernel.so; exit 3")
    with pytest.raises(CompileError, match="fake: compiling for cpu failed: exit status 3") as caught:
        compile_with(program, work_dir)
    assert caught.value.log == "out\nerr\n"
    assert list(work_dir.iterdir()) == []


def test_a_killed_compiler_says_by_which_signal(make_program: MakeProgram, work_dir: Path) -> None:
    with pytest.raises(CompileError, match="killed by SIGKILL"):
        compile_with(make_program("compiler", "kill -9 $$"), work_dir)
    assert list(work_dir.iterdir()) == []


def test_a_compiler_that_makes_nothing_is_an_error(make_program: MakeProgram, work_dir: Path) -> None:
    with pytest.raises(CompileError, match=r"no such file: .*kernel\.so"):
        compile_with(make_program("compiler", "exit 0"), work_dir)


def test_a_compiler_that_cannot_be_started_is_an_error(tmp_path: Path, work_dir: Path) -> None:
    with pytest.raises(CompileError, match=r"no such file: .*nothing"):
        compile_with(tmp_path / "nothing", work_dir)


def test_the_time_limit_kills_the_compiler_and_its_children(
    make_program: MakeProgram,
    work_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_running: Callable[[int], bool],
) -> None:
    monkeypatch.setenv("JITNORM_COMPILE_TIMEOUT", "0.5")
    pids = tmp_path / "pids"
    program = make_program("compiler", f"sleep 60 & echo $! $$ > {pids}; echo started; wait")
    begin = time.monotonic()
    with pytest.raises(CompileError, match=r"killed after 0\.5 s, the limit in JITNORM_COMPILE_TIMEOUT") as caught:
        compile_with(program, work_dir)
    assert time.monotonic() - begin < 30
    assert caught.value.log == "started\n"
    deadline = time.monotonic() + 30
    while any(is_running(int(pid)) for pid in pids.read_text().split()):
        assert time.monotonic() < deadline
        os.sched_yield()
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf"])
def test_a_senseless_time_limit_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("JITNORM_COMPILE_TIMEOUT", text)
    with pytest.raises(ValueError, match="JITNORM_COMPILE_TIMEOUT"):
        time_limit()


def test_the_time_limit_is_five_minutes_by_default() -> None:
    assert time_limit() == 300


def test_variables_that_change_the_output_do_not_reach_the_compiler(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "GCC_EXEC_PREFIX"):
        monkeypatch.setenv(name, "surprise")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    _, output = run([str(make_program("show", "env"))], tmp_path, 30)
    assert "surprise" not in output
    assert "LC_ALL=C\n" in output


def test_output_larger_than_a_pipe_is_read_whole(make_program: MakeProgram) -> None:
    status, output = run([str(make_program("talk", "yes | head -c 1000000"))], None, 30)
    assert (status, len(output)) == (0, 1_000_000)


def test_a_probe_that_fails_names_the_command_and_its_words(make_program: MakeProgram, tmp_path: Path) -> None:
    program = make_program("compiler", "echo broken; exit 1")
    with pytest.raises(RuntimeError, match="compiler --version: exit status 1: broken"):
        ask([str(program), "--version"])
    with pytest.raises(RuntimeError, match="cannot be started"):
        ask([str(tmp_path / "nothing")])
