from __future__ import annotations

import pickle

import pytest

from jitnorm.toolchains import CompileError, ToolchainMissingError

SOURCE = "\n".join(f"line {number}" for number in range(1, 11))


@pytest.mark.parametrize(
    "log",
    [
        "kernel.cpp:5:3: error: expected ';'",
        "kernel.cpp: In function 'f':\nkernel.cpp:5:3: fatal error: no",
        "kernel.cu(5): error: identifier is undefined",
        "kernel.cu(2): warning #177-D: never referenced\n\nkernel.cu(5): error: no\nkernel.cu(9): error: no",
    ],
)
def test_a_compile_error_shows_the_lines_around_the_first_error(log: str) -> None:
    error = CompileError("cxx", "cpu", "exit status 1", log, SOURCE)
    assert error.excerpt.splitlines() == [
        "     3 | line 3",
        "     4 | line 4",
        ">    5 | line 5",
        "     6 | line 6",
        "     7 | line 7",
    ]
    assert error.excerpt in str(error)


def test_an_error_in_the_first_line_has_an_excerpt_that_begins_there() -> None:
    error = CompileError("cxx", "cpu", "exit status 1", "kernel.cpp:1:1: error: no", SOURCE)
    assert error.excerpt.startswith(">    1 | line 1\n")


@pytest.mark.parametrize("log", ["", "other.h:5:3: error: no", "kernel.cpp:5:3: warning: no", "nvcc fatal: 5"])
def test_a_log_that_names_no_line_of_the_source_gives_no_excerpt(log: str) -> None:
    assert CompileError("cxx", "cpu", "exit status 1", log, SOURCE).excerpt == ""


def test_a_long_log_is_shortened_in_the_message_and_whole_in_the_attribute() -> None:
    log = "x" * 100_000
    error = CompileError("nvcc", "sm_90a", "exit status 2", log, SOURCE)
    assert error.log == log
    assert len(str(error)) < 5000
    assert "96000 more characters" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        CompileError("nvcc", "sm_90a", "exit status 2", "kernel.cu(5): error: no", SOURCE),
        ToolchainMissingError("nvcc", ["PATH"], "install it"),
    ],
)
def test_errors_cross_process_boundaries(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_a_missing_toolchain_says_what_where_and_the_remedy() -> None:
    text = str(ToolchainMissingError("nvcc", ["/opt/cuda", "PATH"], "install it"))
    assert text == "nvcc was not found; looked at: /opt/cuda; PATH; remedy: install it"
