from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jitnorm.cache import Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.source import cute_source
from jitnorm.kernels.target import Target
from python_process import run_python

from jitnorm import building, manager
from jitnorm.toolchains import CompileError, ToolchainMissingError, cute, select
from jitnorm.toolchains.cute import Cute
from jitnorm.toolchains.workplace import Workplace

HOPPER = Target("sm_90a")
CONFIG = KernelConfig.parse("rmsnorm:hidden_size=384,quant=e2m1/16")
needs_cutlass = pytest.mark.skipif(
    not any(cute._metadata_in(entry or ".") for entry in sys.path),
    reason="CuTe-DSL is not installed: pip install jitnorm[cute]",
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes the only folder of sys.path one with the metadata of some distributions."""

    def make(*names: str, record: str = "cutlass/__init__.py,sha256=abc,1\n") -> Path:
        for name in names:
            folder = tmp_path / "site" / f"{name}.dist-info"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "RECORD").write_text(record)
        monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
        return tmp_path / "site"

    return make


def test_without_the_package_the_error_says_how_to_get_it(install: Callable[..., Path]) -> None:
    install()
    with pytest.raises(ToolchainMissingError, match=r'CuTe-DSL was not found.*pip install "jitnorm\[cute\]"'):
        Cute()


@pytest.mark.parametrize("version", ["4.7.2", "3.9", "5.0.0"])
def test_a_version_that_is_not_supported_is_refused(version: str, install: Callable[..., Path]) -> None:
    install(f"nvidia_cutlass_dsl-{version}")
    with pytest.raises(ToolchainMissingError, match=rf"4\.8 or a later 4\.x.*version {version} in"):
        Cute()


def test_the_identity_is_the_versions_and_the_files_of_all_parts(install: Callable[..., Path]) -> None:
    install("nvidia_cutlass_dsl-4.10.0", "nvidia_cutlass_dsl_libs_cu13-4.10.0")
    one = Cute().identity()
    assert one.startswith("CuTe-DSL, nvidia_cutlass_dsl 4.10.0, nvidia_cutlass_dsl_libs_cu13 4.10.0, files ")
    install("nvidia_cutlass_dsl_libs_cu13-4.10.0", record="lib/a.so,sha256=def,22\n")
    other = Cute().identity()
    assert one.partition("files")[0] == other.partition("files")[0]
    assert one != other


def test_what_installers_add_does_not_change_the_identity(install: Callable[..., Path]) -> None:
    line = "cutlass/__init__.py,sha256=abc,1\n"
    install("nvidia_cutlass_dsl-4.8.1", record=line)
    one = Cute().identity()
    install("nvidia_cutlass_dsl-4.8.1", record=f"cutlass/__pycache__/a.pyc,,\nINSTALLER,sha256=x,4\n{line}")
    assert Cute().identity() == one


def test_the_flags_have_the_target_and_what_the_dsl_reads_from_the_environment(
    install: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("nvidia_cutlass_dsl-4.8.1")
    monkeypatch.setenv("CUTE_DSL_DUMP_DIR", "/elsewhere")
    assert Cute().flags(HOPPER) == ("--gpu-arch=sm_90a",)
    monkeypatch.setenv("CUTE_DSL_LINEINFO", "1")
    assert Cute().flags(HOPPER) == ("--gpu-arch=sm_90a", "CUTE_DSL_LINEINFO=1")


@needs_cutlass
def test_it_builds_and_leaves_the_process_as_it_was(
    work_dir: Path, workplaces: list[Workplace], cubin_architecture: Callable[[bytes], int], tmp_path: Path
) -> None:
    environment, hook = dict(os.environ), sys.excepthook
    cubin = Cute(workplaces=workplaces).compile(cute_source(CONFIG, HOPPER).text, HOPPER)
    assert cubin_architecture(cubin) == 90
    assert b".text.jitnorm_kernel_0\0" in cubin
    assert list(work_dir.iterdir()) == []
    assert (dict(os.environ), sys.excepthook) == (environment, hook)


BUILD = """
import hashlib, os, sys
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.source import cute_source
from jitnorm.kernels.target import Target
from jitnorm.toolchains import select
hook, environment = sys.excepthook, dict(os.environ)
target = Target("sm_90a")
source = cute_source(KernelConfig.parse("rmsnorm:hidden_size=384,quant=e2m1/16"), target)
cubin = select(target, "cute").compile(source.text, target)
assert (hook, environment) == (sys.excepthook, dict(os.environ))
print(hashlib.sha256(cubin).hexdigest())
"""


@needs_cutlass
def test_every_process_makes_the_same_bytes_and_writes_nothing(tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        digests.add(run_python(BUILD, cwd=folder, HOME=str(folder), TMPDIR=str(folder)))
        assert list(folder.iterdir()) == []
    assert len(digests) == 1


@needs_cutlass
def test_threads_and_forked_workers_build() -> None:
    program = (
        BUILD.partition("hook, environment")[0]
        + """
import multiprocessing, threading
target, texts = Target("sm_90a"), [f"rmsnorm:hidden_size={64 * i}" for i in range(1, 5)]
def build(text):
    source = cute_source(KernelConfig.parse(text), target)
    return hashlib.sha256(select(target, "cute").compile(source.text, target)).hexdigest()
def keep(text):
    found[text] = build(text)
found = {}
threads = [threading.Thread(target=keep, args=(text,)) for text in texts]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async(build, texts).get(60) == [found[text] for text in texts])
"""
    )
    assert run_python(program, cwd=Path.cwd()).strip() == "True"


@needs_cutlass
def test_another_source_is_refused() -> None:
    text = cute_source(CONFIG, HOPPER).text
    with pytest.raises(ValueError, match="regenerate it"):
        Cute().compile(text + "\n", HOPPER)
    with pytest.raises(ValueError, match="regenerate it"):
        Cute().compile(text, Target("sm_100a"))
    with pytest.raises(ValueError, match="not for cpu"):
        Cute().compile(text, Target("cpu"))


@needs_cutlass
def test_what_goes_wrong_in_the_dsl_is_a_compile_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitnorm.kernels.cute import build

    def fail(*_: object) -> bytes:
        raise KeyError("no such stage")

    monkeypatch.setattr(build, "build", fail)
    with pytest.raises(CompileError, match="cute: compiling for sm_90a failed: KeyError"):
        Cute().compile(cute_source(CONFIG, HOPPER).text, HOPPER)


def test_a_package_that_cannot_be_imported_is_missing(install: Callable[..., Path], tmp_path: Path) -> None:
    """Its metadata exists, but its modules do not."""
    install("nvidia_cutlass_dsl-4.8.1")
    program = f"""
import sys
import jitnorm
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.cute.source import cute_source
from jitnorm.kernels.target import Target
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.cute import Cute
from jitnorm.toolchains.workplace import Workplace
sys.modules["cutlass"] = None
sys.path.insert(0, {str(tmp_path / "site")!r})
target = Target("sm_90a")
try:
    Cute().compile(cute_source(KernelConfig("rmsnorm", 64), target).text, target)
except ToolchainMissingError as error:
    print(error)
"""
    assert "which cannot be imported" in run_python(program, cwd=tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@needs_cutlass
def test_its_kernels_have_keys_and_recipes_of_their_own(store: Store) -> None:
    one = manager.load_or_build_kernel(CONFIG, HOPPER, store, "cute")
    assert one.manifest["backend"] == "cute"
    assert '"entry":"jitnorm_kernel_0"' in one.manifest["recipe"]
    other = manager.load_or_build_kernel(CONFIG, HOPPER, store, "nvrtc")
    assert other.manifest["backend"] == "nvrtc"
    assert len(list(store.entries())) == 2


@needs_cutlass
def test_the_variable_falls_back_to_cuda_cxx_with_one_line_of_log(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing = KernelConfig.parse("dequantize:hidden_size=64,quant=e2m1/16")
    building._log_replacement.cache_clear()
    monkeypatch.setenv("JITNORM_BACKEND", "cute")
    with caplog.at_level(logging.WARNING, logger="jitnorm"):
        chosen = [building.toolchain_for(config, HOPPER, store).name for config in (CONFIG, missing, missing)]
    assert chosen == ["cute", "nvrtc", "nvrtc"]
    assert [record.message for record in caplog.records if record.name == "jitnorm"] == [
        "kernels that cute cannot build are built from CUDA C++: the op is dequantize, not a norm or a quantization "
        "of rows"
    ]
    with pytest.raises(ValueError, match="has no kernel for dequantize"):
        manager.load_or_build_kernel(missing, HOPPER, store, "cute")


@needs_cutlass
def test_a_warm_load_does_not_import_the_dsl(store: Store, tmp_path: Path) -> None:
    manager.load_or_build_kernel(CONFIG, HOPPER, store, "cute")
    program = f"""
import sys
from pathlib import Path
from jitnorm.cache import Store
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from jitnorm.manager import load_or_build_kernel
config, store = KernelConfig.parse({str(CONFIG)!r}), Store(Path({str(tmp_path / "cache")!r}))
load_or_build_kernel(config, Target("sm_90a"), store, "cute")
print("cutlass" in sys.modules)
"""
    assert run_python(program, cwd=tmp_path).strip() == "False"


@needs_cutlass
def test_it_can_be_named_and_is_the_last_choice(install: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert select(HOPPER, "cute").name == "cute"
    assert select(HOPPER).name == "nvrtc"
    install("nvidia_cutlass_dsl-4.8.1")
    monkeypatch.setattr("jitnorm.toolchains.nvrtc_library._SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", "")
    assert select(HOPPER).name == "cute"
