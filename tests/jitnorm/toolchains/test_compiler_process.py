from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jitnorm.kernels.target import Target
from processes import is_running, is_tied, wait_until

from jitnorm.toolchains import CompileError, process
from jitnorm.toolchains.lifeline import Lifeline
from jitnorm.toolchains.process import ask, compile_file, run, time_limit
from jitnorm.toolchains.workplace import Workplace, temporary_folder

MakeProgram = Callable[[str, str], Path]


def compile_with(program: Path, workplaces: list[Workplace], source: str = "source") -> bytes:
    return compile_file(
        [str(program)],
        source=source,
        source_name="kernel.cpp",
        output_name="kernel.so",
        toolchain="fake",
        target=Target("cpu"),
        workplaces=workplaces,
    )


def test_the_compiler_reads_the_source_and_makes_the_output_in_its_own_folder(
    make_program: MakeProgram, work_dir: Path, workplaces: list[Workplace]
) -> None:
    program = make_program("compiler", 'pwd > kernel.so; echo "$TMPDIR" >> kernel.so; cat kernel.cpp >> kernel.so')
    folder, temporary, text = compile_with(program, workplaces, "int é;").decode().splitlines()
    assert Path(folder).parent == work_dir
    assert temporary == folder
    assert text == "int é;"
    assert list(work_dir.iterdir()) == []


def test_a_failing_compiler_gives_its_log_and_leaves_nothing(
    make_program: MakeProgram, work_dir: Path, workplaces: list[Workplace]
) -> None:
    program = make_program("compiler", "echo out; echo err >&2; echo partial > kernel.so; exit 3")
    with pytest.raises(CompileError, match="fake: compiling for cpu failed: exit status 3") as caught:
        compile_with(program, workplaces)
    assert caught.value.log == "out\nerr\n"
    assert list(work_dir.iterdir()) == []


def test_a_killed_compiler_says_by_which_signal(
    make_program: MakeProgram, work_dir: Path, workplaces: list[Workplace]
) -> None:
    with pytest.raises(CompileError, match="killed by SIGKILL"):
        compile_with(make_program("compiler", "kill -9 $$"), workplaces)
    assert list(work_dir.iterdir()) == []


def test_a_compiler_that_makes_nothing_is_an_error(make_program: MakeProgram, workplaces: list[Workplace]) -> None:
    with pytest.raises(CompileError, match=r"no such file: .*kernel\.so"):
        compile_with(make_program("compiler", "exit 0"), workplaces)


def test_a_compiler_that_cannot_be_started_is_an_error(tmp_path: Path, workplaces: list[Workplace]) -> None:
    with pytest.raises(CompileError, match=r"no such file: .*nothing"):
        compile_with(tmp_path / "nothing", workplaces)


def test_a_compiler_for_which_the_system_has_no_room_is_an_error_in_its_words(
    make_program: MakeProgram, workplaces: list[Workplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(process, "run", refuse)
    with pytest.raises(CompileError, match=r"\[Errno 24\] Too many open files(?!: None)"):
        compile_with(make_program("compiler", ""), workplaces)


def test_the_time_limit_kills_the_compiler_and_its_children(
    make_program: MakeProgram,
    work_dir: Path,
    workplaces: list[Workplace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JITNORM_COMPILE_TIMEOUT", "0.5")
    pids = tmp_path / "pids"
    program = make_program("compiler", f"sleep 60 & echo $! $$ > {pids}; echo started; wait")
    begin = time.monotonic()
    with pytest.raises(CompileError, match=r"killed after 0\.5 s, the limit in JITNORM_COMPILE_TIMEOUT") as caught:
        compile_with(program, workplaces)
    assert time.monotonic() - begin < 30
    assert caught.value.log == "started\n"
    wait_until(lambda: not any(map(is_running, numbers_in(pids))))
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize("moment", [(Lifeline, "tie"), (subprocess.Popen, "communicate")], ids=["start", "run"])
def test_an_interrupt_kills_the_compiler(
    moment: tuple[type, str], make_program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"

    def interrupt(*_: object, **__: object) -> None:
        wait_until(started.exists)
        raise KeyboardInterrupt

    monkeypatch.setattr(*moment, interrupt)
    program = make_program("compiler", f"echo $$ > pid; mv pid {started}; exec sleep 60")
    with pytest.raises(KeyboardInterrupt):
        run([str(program)], tmp_path, 300)
    wait_until(lambda: not any(map(is_running, numbers_in(started))), seconds=3)


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


BUILDER = """
import sys
from pathlib import Path
from jitnorm.kernels.target import Target
from jitnorm.toolchains.process import compile_file
from jitnorm.toolchains.workplace import DEFAULT_WORKPLACES
names = {"source": "", "source_name": "kernel.cpp", "output_name": "kernel.so"}
compile_file(sys.argv[1:], **names, toolchain="fake", target=Target("cpu"), workplaces=DEFAULT_WORKPLACES)
"""
# The same in a process that has forked meanwhile, as a server with workers does; the child outlives it.
FORKING_BUILDER = f"""
import os, threading, time
def fork_during_the_build():
    while not os.path.exists(os.environ["STARTED"]):
        time.sleep(0.01)
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
threading.Thread(target=fork_during_the_build, daemon=True).start()
{BUILDER}
"""


@pytest.mark.parametrize("builder", [BUILDER, FORKING_BUILDER], ids=["alone", "with a forked child"])
def test_a_killed_builder_takes_its_compilers_along(builder: str, make_program: MakeProgram, tmp_path: Path) -> None:
    pids, started = tmp_path / "pids", tmp_path / "started"
    program = make_program("compiler", f"sleep 60 & echo $! $$ > {pids}; mv {pids} {started}; wait")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "STARTED": str(started)}
    command = [sys.executable, "-c", builder, str(program)]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        try:
            wait_until(started.exists)
            wait_until(lambda: all(map(is_tied, numbers_in(started))))
            time.sleep(0.3)  # the fork comes after the start, and the kill after the fork
        finally:
            process.kill()
        wait_until(lambda: not any(map(is_running, numbers_in(started))), seconds=3)


def numbers_in(file: Path) -> list[int]:
    return [int(text) for text in file.read_text().split()]


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def cannot_be_made() -> Iterator[Path]:
    raise FULL
    yield Path()


def test_where_one_workplace_is_full_the_next_serves(
    make_program: MakeProgram, work_dir: Path, workplaces: list[Workplace]
) -> None:
    program = make_program("compiler", "cat kernel.cpp > kernel.so")
    assert compile_with(program, [cannot_be_made, *workplaces]) == b"source"
    # A compiler tells it in its own words.
    full = make_program(
        "full", f'case "$PWD" in {work_dir}/*) echo "as: kernel.o: No space left on device"; exit 1; esac; {program}'
    )
    assert compile_with(full, [*workplaces, temporary_folder]) == b"source"
    assert list(work_dir.iterdir()) == []


def test_a_full_disk_is_an_error_that_names_the_folder_and_the_remedy(
    make_program: MakeProgram, work_dir: Path, workplaces: list[Workplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program("compiler", "touch kernel.so")

    def fail(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(Path, "write_text", fail)
    remedy = "free some space, or set TMPDIR to a folder with space"
    with pytest.raises(CompileError, match=rf"{work_dir}: No space left on device\): {remedy}"):
        compile_with(program, workplaces)
    assert list(work_dir.iterdir()) == []


def test_no_folder_for_temporary_files_is_such_an_error_too(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", fail)
    with pytest.raises(CompileError, match=r"No usable temporary directory found in .*set TMPDIR to a folder"):
        compile_with(make_program("compiler", "touch kernel.so"), [temporary_folder])
