"""What a process does without a compiler, or without the permission to use it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jitnorm.cache import Artifact, Cache, Store
from jitnorm.cache.events import subscribe
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import Source, generate
from jitnorm.kernels.target import Target
from python_process import run_python

from jitnorm import KernelNotWarmError, building, kernel_source, manager, misses
from jitnorm.launcher import load_launcher, load_or_build_launcher
from jitnorm.store import user_cache
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.toolchains.cxx import Cxx

CPU = Target("cpu")
SM90A = Target("sm_90a")
CONFIG = KernelConfig("rmsnorm", 48, "float16")
SOURCE = generate(CONFIG, CPU)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(Store(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _nothing_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misses, "_recorded", {})


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("jitnorm.toolchains.zig.on_sys_path", lambda relative: None)


@pytest.fixture
def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")


def record_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def prebuilt(backend: str = "cxx", source: Source = SOURCE, **fields: Any) -> Artifact:
    """A kernel as if the compiler of another machine had built it."""
    recipe = kernel_source.recipe_text(source.config, source.target)
    manifest = {"backend": backend, "source_key": kernel_source.kernel_source_key(source), "recipe": recipe, **fields}
    return Artifact(f"by {backend}".encode(), manifest)


# Without a compiler.


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_any_artifact_of_the_same_source_serves(cache: Cache) -> None:
    cache.store.publish("1" * 64, prebuilt())
    assert manager.load_or_build_kernel(CONFIG, CPU, cache) == prebuilt()


def test_zig_stands_in_for_a_compiler_where_no_artifact_serves(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    built = manager.load_or_build_kernel(CONFIG, CPU, cache)
    assert built.manifest["backend"] == "zig"
    other = Cache(Store(tmp_path / "other"))
    other.store.publish("1" * 64, prebuilt())
    assert manager.load_or_build_kernel(CONFIG, CPU, other) == prebuilt()
    assert manager.load_or_build_kernel(CONFIG, CPU, other, "zig").payload == built.payload


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_error_is_the_toolchains_if_nothing_serves(cache: Cache) -> None:
    cache.store.publish("1" * 64, prebuilt())
    with pytest.raises(ToolchainMissingError, match="remedy: install"):
        manager.load_or_build_kernel(KernelConfig("rmsnorm", 64, "float16"), CPU, cache)


def test_with_a_compiler_its_own_artifact_is_wanted(cache: Cache) -> None:
    cache.store.publish("1" * 64, prebuilt())
    built = manager.load_or_build_kernel(CONFIG, CPU, cache)
    assert built.payload != prebuilt().payload
    assert built.manifest["source_key"] == kernel_source.kernel_source_key(SOURCE)
    assert built.manifest["requires"]["machine"] == os.uname().machine


def test_a_named_backend_is_served_by_its_own_artifacts_alone(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ToolchainMissingError("a compiler", [], "install it")

    monkeypatch.setattr(building, "select", missing)
    cache.store.publish("1" * 64, prebuilt("nvrtc", generate(CONFIG, SM90A)))
    assert manager.load_or_build_kernel(CONFIG, SM90A, cache).payload == b"by nvrtc"
    assert manager.load_or_build_kernel(CONFIG, SM90A, cache, "nvrtc").payload == b"by nvrtc"
    with pytest.raises(ToolchainMissingError):
        manager.load_or_build_kernel(CONFIG, SM90A, cache, "nvcc")
    monkeypatch.setenv("JITNORM_BACKEND", "nvcc")
    with pytest.raises(ToolchainMissingError):
        manager.load_or_build_kernel(CONFIG, SM90A, cache)
    monkeypatch.setenv("JITNORM_BACKEND", "nvrtc")
    assert manager.load_or_build_kernel(CONFIG, SM90A, cache).payload == b"by nvrtc"


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(
    "requires",
    [
        {"machine": "s390x"},
        {"glibc": "99.1"},
        {"cpu": "x86-64-v9"},
        {"moon": "full"},
        ["machine"],
        {"glibc": "9" * 5000},
    ],
    ids=lambda requires: str(requires)[:30],
)
def test_what_this_machine_cannot_run_does_not_serve(cache: Cache, requires: Any) -> None:
    cache.store.publish("1" * 64, prebuilt(requires=requires))
    with pytest.raises(ToolchainMissingError):
        manager.load_or_build_kernel(CONFIG, CPU, cache)
    cache.store.publish("2" * 64, prebuilt(requires={"machine": os.uname().machine, "glibc": "2.2"}))
    assert manager.load_or_build_kernel(CONFIG, CPU, cache).payload == b"by cxx"


# The launcher.


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_and_a_launcher_the_error_says_what_to_install(cache: Cache) -> None:
    with pytest.raises(ToolchainMissingError):
        load_or_build_launcher(cache)


def test_a_prebuilt_launcher_is_taken_before_building_one(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    built = load_or_build_launcher(user_cache())
    cache.store.publish("1" * 64, built)
    monkeypatch.setattr(Cxx, "identity", lambda self: "g++ 99")
    monkeypatch.setattr(Cxx, "build_shared", lambda *_: pytest.fail("built"))
    assert load_or_build_launcher(cache) == built
    request.getfixturevalue("no_compiler")
    assert load_or_build_launcher(cache) == built


ELSEWHERE = {
    "empty": lambda payload: b"",
    "of no format": lambda payload: b"\x7fELF garbage",
    "of another libc": lambda payload: payload.replace(b"GLIBC_2.2.5\0", b"GLIBC_9.9.9\0"),
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_a_launcher_that_does_not_load_here_does_not_serve(
    cache: Cache,
    change: Callable[[bytes], bytes],
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    good = load_or_build_launcher(user_cache())
    assert change(good.payload) != good.payload
    cache.store.publish("1" * 64, Artifact(change(good.payload), {**good.manifest, "toolchain": "another"}))
    request.getfixturevalue("no_compiler")
    with pytest.raises(ToolchainMissingError):
        load_launcher(cache)
    assert "ignoring a launcher built by another" in caplog.text


# JITNORM_JIT.


@pytest.mark.usefixtures("no_compiling")
def test_deny_raises_for_what_is_not_there_and_says_how_to_warm_it(cache: Cache) -> None:
    seen: list[tuple[str, Any]] = []
    unsubscribe = subscribe(lambda kind, fields: seen.append((kind, fields["seconds"])))
    with pytest.raises(KernelNotWarmError) as raised:
        manager.load_or_build_kernel(CONFIG, CPU, cache)
    unsubscribe()
    ((kind, seconds),) = seen
    assert kind == "miss"
    assert 0 < seconds < 10
    assert raised.value.what == str(CONFIG)
    assert raised.value.target == "cpu"
    assert f"jitnorm warm --config {CONFIG} --arch cpu" in str(raised.value).replace("'", "")
    (line,) = record_of(cache.store.layout.misses)
    assert (line["config"], line["target"]) == (str(CONFIG), "cpu")
    assert line["time"] > 1.6e9


@pytest.mark.usefixtures("no_compiling")
def test_deny_records_a_miss_once(cache: Cache) -> None:
    for _ in range(3):
        for config in (CONFIG, KernelConfig("rmsnorm", 64, "float16")):
            with pytest.raises(KernelNotWarmError):
                manager.load_or_build_kernel(config, CPU, cache)
    assert len(record_of(cache.store.layout.misses)) == 2


def test_deny_serves_what_is_there_without_looking_for_a_compiler(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = manager.load_or_build_kernel(CONFIG, CPU, cache)
    monkeypatch.setenv("JITNORM_JIT", "deny")
    monkeypatch.setattr(building, "toolchain_for", lambda *_: pytest.fail("looked for"))
    assert manager.load_or_build_kernel(CONFIG, CPU, cache) == built


def test_deny_finds_an_entry_whose_alias_was_lost(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    built = manager.load_or_build_kernel(CONFIG, CPU, cache)
    cache.store.layout.alias(kernel_source.kernel_source_key(SOURCE)).unlink()
    monkeypatch.setenv("JITNORM_JIT", "deny")
    assert manager.load_or_build_kernel(CONFIG, CPU, cache) == built


@pytest.mark.usefixtures("no_compiling")
def test_deny_never_builds_the_launcher(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cxx, "build_shared", lambda *_: pytest.fail("built"))
    with pytest.raises(KernelNotWarmError, match="the launcher"):
        load_or_build_launcher(cache)


def test_record_builds_and_records(cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JITNORM_JIT", "record")
    monkeypatch.setenv("JITNORM_MISS_RECORD", str(tmp_path / "misses"))
    for _ in range(2):
        assert manager.load_or_build_kernel(CONFIG, CPU, cache).manifest["config"] == str(CONFIG)
    assert [line["config"] for line in record_of(tmp_path / "misses")] == [str(CONFIG)]
    assert not cache.store.layout.misses.exists()


def test_auto_records_nothing(cache: Cache) -> None:
    manager.load_or_build_kernel(CONFIG, CPU, cache)
    assert not cache.store.layout.misses.exists()


@pytest.mark.usefixtures("no_compiling")
def test_a_record_that_cannot_be_written_gives_one_warning(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JITNORM_MISS_RECORD", str(tmp_path / "missing" / "file"))
    for hidden_size in (48, 64):
        with pytest.raises(KernelNotWarmError):
            manager.load_or_build_kernel(KernelConfig("rmsnorm", hidden_size, "float16"), CPU, cache)
    assert [str(tmp_path / "missing") in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.usefixtures("no_compiling")
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to(path.parent / "elsewhere")], ids=["pipe", "link"]
)
def test_a_record_in_the_cache_that_is_no_file_is_not_written_to(
    cache: Cache, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    cache.store.layout.version.mkdir(parents=True)
    make(cache.store.layout.misses)
    with pytest.raises(KernelNotWarmError):
        manager.load_or_build_kernel(CONFIG, CPU, cache)
    assert not (cache.store.layout.version / "elsewhere").exists()
    assert "cannot record misses" in caplog.text


def test_another_mode_is_an_error_that_names_those_there_are(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "never")
    with pytest.raises(ValueError, match="JITNORM_JIT: is 'never'; allowed are auto, deny, record"):
        manager.load_or_build_kernel(CONFIG, CPU, cache)


# The whole way, as a server has it: no compiler, compiling denied, kernels in a folder that it cannot write.

SERVER = """
import sys
import numpy as np, jitnorm
x = np.arange(96, dtype=np.float16).reshape(2, 48)
sys.stdout.write(jitnorm.rmsnorm(x, np.ones(48, np.float16)).tobytes().hex() + "\\n")
try:
    jitnorm.rmsnorm(np.ones((2, 80), np.float16), np.ones(80, np.float16))
except jitnorm.KernelNotWarmError as error:
    print(error)
"""


@pytest.mark.parametrize("tier", ["read-only folder", "wheel"])
def test_a_server_without_compilers_runs_what_was_built_elsewhere(tmp_path: Path, tier: str) -> None:
    package = tmp_path / "site" / "jitnorm_kernels_cpu"
    image = Store(package / "cache")
    image.publish("1" * 64, load_or_build_launcher(user_cache()))
    for key, vector_bytes in (("2" * 64, 16), ("3" * 64, 8)):
        config = KernelConfig("rmsnorm", 48, "float16", vector_bytes=vector_bytes)
        image.publish(key, manager.load_or_build_kernel(config, CPU, user_cache()))
    environment = {
        "PATH": str(tmp_path / "no-programs"),
        "CXX": "",
        "JITNORM_JIT": "deny",
        "JITNORM_CACHE_DIR": str(tmp_path / "user"),
    }
    if tier == "wheel":
        metadata = tmp_path / "site" / "jitnorm_kernels_cpu-1.0.dist-info"
        metadata.mkdir()
        (metadata / "entry_points.txt").write_text("[jitnorm.kernels]\ncpu = jitnorm_kernels_cpu\n")
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    else:
        environment["JITNORM_READONLY_CACHE"] = str(image.layout.root)
    for path in (package, *package.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        result, refusal = run_python(SERVER, cwd=tmp_path, **environment).splitlines()
    finally:
        for path in (package, *package.rglob("*")):
            path.chmod(0o755)
    assert [result] == run_python(SERVER, cwd=tmp_path, JITNORM_JIT="auto").splitlines()
    assert "hidden_size=80" in refusal
    (line,) = record_of(tmp_path / "user" / "v1" / "misses.jsonl")
    assert line["config"].startswith("rmsnorm:hidden_size=80")
    assert line["target"] == "cpu"
    assert not list(Store(tmp_path / "user").entries())
