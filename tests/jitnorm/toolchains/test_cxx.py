from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from jitnorm.cache import Store
from jitnorm.kernels.target import Target

from jitnorm.store import MemoFolder
from jitnorm.toolchains import CompileError, ToolchainMissingError, cxx, identity
from jitnorm.toolchains.cxx import Cxx
from jitnorm.toolchains.workplace import Workplace, temporary_folder

MakeProgram = Callable[[str, str], Path]
CPU = Target("cpu")
SOURCE = """
#include <cmath>
namespace { int calls; struct Count { Count() { ++calls; } } count; }
extern "C" float rms(const float* x, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum / static_cast<float>(n)) * static_cast<float>(calls);
}
"""


def load(payload: bytes, folder: Path) -> ctypes.CDLL:
    path = folder / "payload.so"
    path.write_bytes(payload)
    return ctypes.CDLL(str(path))


def test_the_payload_is_a_library_that_can_be_called(
    tmp_path: Path, work_dir: Path, workplaces: list[Workplace]
) -> None:
    rms = load(Cxx(workplaces=workplaces).compile(SOURCE, CPU), tmp_path).rms
    rms.restype = ctypes.c_float
    assert rms((ctypes.c_float * 2)(1.0, 7.0), 2) == 5.0
    assert list(work_dir.iterdir()) == []


def test_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    here, there = ([partial(temporary_folder, folder)] for folder in (tmp_path, tmp_path / "other"))
    assert Cxx(workplaces=here).compile(SOURCE) == Cxx(workplaces=there).compile(SOURCE)


def test_products_are_not_contracted_into_sums(tmp_path: Path) -> None:
    source = 'extern "C" float f(float a, float b, float c) { return a * b + c; }'
    f = load(Cxx().compile(source), tmp_path).f
    f.restype, f.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    a = 1 + 2.0**-12
    assert f(a, a, -(1 + 2.0**-11)) == 0.0  # fused, the rounding error 2**-24 would remain


def test_build_shared_uses_the_flags_of_the_caller_alone(tmp_path: Path) -> None:
    include = tmp_path / "include"
    include.mkdir()
    (include / "answer.h").write_text("#define ANSWER 40\n")
    refuses_optimization = "#ifdef __OPTIMIZE__\n#error\n#endif\n"
    source = f'{refuses_optimization}#include <answer.h>\nextern "C" int f() {{ return ANSWER + MORE; }}'
    assert load(Cxx().build_shared(source, [f"-I{include}", "-DMORE=2"]), tmp_path).f() == 42


def test_a_refused_source_gives_the_log_and_the_line() -> None:
    with pytest.raises(CompileError, match="cxx: compiling for cpu failed: exit status 1") as caught:
        Cxx().compile("int f() {\n  return undefined;\n}")
    assert "undefined" in caught.value.log
    assert ">    2 |   return undefined;" in str(caught.value)
    assert "jitnorm-" not in str(caught.value)


def test_cuda_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="not for sm_90a"):
        Cxx().compile(SOURCE, Target("sm_90a"))


@pytest.mark.parametrize("has", [["x86-64-v4", "x86-64-v3"], ["x86-64-v3"], []])
def test_the_flags_name_the_highest_level_of_instructions_that_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, has: list[str]
) -> None:
    monkeypatch.setattr(cxx, "processor_has", has.__contains__)
    monkeypatch.setattr(Cxx, "identity", lambda self: "gcc version 13.2.0 (GCC), x86_64-linux-gnu")
    flags = Cxx().flags(CPU)
    assert [flag for flag in flags if flag.startswith("-march=")] == [f"-march={level}" for level in has[:1]]
    assert ("-mprefer-vector-width=512" in flags) == ("x86-64-v4" in has)
    assert "-ffp-contract=off" in flags
    assert not {"-ffast-math", "-march=native"} & set(flags)


@pytest.mark.parametrize(
    ("text", "knows"),
    [
        ("gcc version 12.2.0 (Debian 12.2.0-14+deb12u1), x86_64-linux-gnu", True),
        ("gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04), x86_64-linux-gnu", True),
        ("gcc version 9.4.0 (Ubuntu 9.4.0-1ubuntu1~20.04.2), x86_64-linux-gnu", False),
        ("gcc version 10.2.1 20210130 (Red Hat 10.2.1-11) (GCC), x86_64-redhat-linux", False),
        ("gcc version 14.2.1 20250110 (Red Hat 14.2.1-7) (GCC), x86_64-redhat-linux", True),
        ("gcc version 12.2.0 (Debian 12.2.0-14), aarch64-linux-gnu", False),
        ("Debian clang version 14.0.6, x86_64-pc-linux-gnu", True),
        ("clang version 11.1.0, x86_64-unknown-linux-gnu", False),
        ("clang version 17.0.6 (Fedora 17.0.6-2.fc39), x86_64-redhat-linux-gnu", True),
        ("some compiler, x86_64-linux-gnu", False),
    ],
)
def test_the_level_is_known_from_gcc_11_and_clang_12_on(text: str, knows: bool) -> None:
    assert cxx._compiler_knows_levels(text) == knows


FAKE = 'case "$1" in -v) echo "Target: x86_64-linux-gnu"; echo "gcc version 12.1.0 (Fake) ";; esac'


def test_cxx_comes_before_gxx_and_gxx_before_clangxx(
    only_path: Path, make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = make_program("clang++", FAKE)
    assert Cxx().location == clang
    gxx = make_program("g++", FAKE)
    assert Cxx().location == gxx
    mine = make_program("my-compiler", FAKE)
    monkeypatch.setenv("CXX", "my-compiler")
    assert Cxx().location == mine
    monkeypatch.setenv("CXX", str(clang))
    assert Cxx().location == clang


def test_a_missing_compiler_names_the_remedy(only_path: Path) -> None:
    with pytest.raises(ToolchainMissingError, match=r"g\+\+, clang\+\+ on PATH.*apt-get install g\+\+.*CXX"):
        Cxx()


@pytest.mark.parametrize("value", ["ccache g++", "no-such-compiler"])
def test_a_cxx_that_is_no_program_is_an_error_even_where_gxx_exists(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CXX", value)
    with pytest.raises(ToolchainMissingError, match=f"CXX='{value.replace('+', '[+]')}'"):
        Cxx()


def test_the_identity_is_the_version_and_the_machine() -> None:
    version, _, machine = Cxx().identity().rpartition(", ")
    assert any(digit.isdigit() for digit in version)
    assert machine.count("-") >= 2
    assert "/" not in version


def test_the_identity_does_not_depend_on_the_name_of_the_program(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = set()
    for name in ("g++", "c++", "x86_64-conda-linux-gnu-g++"):
        monkeypatch.setenv("CXX", str(make_program(name, FAKE)))
        texts.add(Cxx().identity())
    assert texts == {"gcc version 12.1.0 (Fake), x86_64-linux-gnu"}


def test_a_program_that_names_no_version_is_refused(make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(make_program("g++", "echo Target: x86_64-linux-gnu")))
    with pytest.raises(RuntimeError, match=r"g[+][+] -v: no version or target in its output: 'Target.*or set CXX to"):
        Cxx().identity()


def test_a_program_that_fails_names_the_remedy(make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(make_program("g++", "exit 1")))
    with pytest.raises(RuntimeError, match=r"g[+][+] -v: exit status 1: ; install g.*or set CXX to one"):
        Cxx().identity()


def test_a_binary_is_asked_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = Cxx(MemoFolder(Store(tmp_path / "memo"))).identity()
    monkeypatch.setattr(identity, "_seen", {})
    monkeypatch.setattr(Cxx, "_probe", lambda self: pytest.fail("asked again"))
    assert Cxx(MemoFolder(Store(tmp_path / "memo"))).identity() == first


def test_what_may_hide_another_compiler_is_asked_in_every_process(
    make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = make_program("g++", FAKE)
    (tmp_path / "link").mkdir()
    ccache = Path(shutil.copy(shutil.which("true") or "/bin/true", tmp_path / "ccache"))
    masquerade = tmp_path / "link/g++"
    masquerade.symlink_to(ccache)
    for compiler in (script, masquerade):
        assert not cxx._is_compiler(compiler)
    monkeypatch.setenv("CXX", str(script))
    Cxx(MemoFolder(Store(tmp_path / "memo"))).identity()
    assert not (tmp_path / "memo").exists()


def test_a_compiler_that_is_killed_is_reported(make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'if [ "$1" = -shared ]; then kill -SEGV $$; fi\n{FAKE}'
    monkeypatch.setenv("CXX", str(make_program("g++", script)))
    with pytest.raises(CompileError, match="cxx: compiling for cpu failed: killed by SIGSEGV"):
        Cxx().compile(SOURCE)


def test_where_the_processor_cannot_be_asked_the_oldest_one_is_built_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cxx, "_CPUINFO", str(tmp_path / "cpuinfo"))
    cxx._processor_features.cache_clear()
    try:
        assert Cxx().flags(CPU) == Cxx().flags(CPU) == cxx.OPTIONS
    finally:
        cxx._processor_features.cache_clear()
    (warning,) = caplog.messages
    assert f"{tmp_path}/cpuinfo" in warning
