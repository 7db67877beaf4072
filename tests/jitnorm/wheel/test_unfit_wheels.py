"""A wheel serves what fits, and what does not fit is compiled, or refused by name where compiling is denied."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, open_cache
from jitnorm.cache.layout import PAYLOAD
from jitnorm.cache.wheels import wheel_folders
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target
from wheels import kernel, lay_out

from jitnorm import KernelNotWarmError
from jitnorm.manager import load_or_build_kernel
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.wheel.describe import describe_wheel

CONFIG = "rmsnorm:hidden_size=48,input=float16"
CPU = Target("cpu")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(tmp_path / "user"))


def load(target: Target = CPU) -> Artifact:
    return load_or_build_kernel(KernelConfig.parse(CONFIG), target, open_cache())


def stored(cache: Cache) -> int:
    return len(list(cache.store.entries()))


@pytest.fixture
def deny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")


def test_what_fits_is_served_and_not_stored_again(site: Path) -> None:
    key, artifact = kernel(CONFIG)
    lay_out(site).publish(key, artifact)
    assert load() == artifact
    assert stored(open_cache()) == 0


@pytest.mark.usefixtures("deny")
def test_one_of_another_toolchain_serves_where_compiling_is_denied(site: Path) -> None:
    _, artifact = kernel(CONFIG)
    lay_out(site).publish("1" * 64, artifact)
    assert load() == artifact


def test_one_of_another_toolchain_is_passed_over_where_compiling_is_allowed(site: Path) -> None:
    key, artifact = kernel(CONFIG, toolchain="another")
    lay_out(site).publish("1" * 64, artifact)
    assert load().manifest["toolchain"] != "another"
    assert open_cache().store.load(key) is not None


@pytest.mark.usefixtures("deny")
def test_one_for_another_gpu_serves_nothing(site: Path) -> None:
    key, artifact = kernel(CONFIG)
    lay_out(site, "sm100a").publish(key, artifact)
    with pytest.raises(KernelNotWarmError, match="for sm_90a is in no tier") as caught:
        load(Target("sm_90a"))
    assert "--arch sm_90a" in str(caught.value)


UNFIT = [
    {"requires": {"machine": "riscv64"}},
    {"requires": {"glibc": "9.99"}},
    {"requires": {"cpu": "x86-64-v9"}},
    {"requires": {"something": "unheard of"}},
    {"requires": "nonsense"},
    {"source_key": "2" * 64},
]


@pytest.mark.usefixtures("deny")
@pytest.mark.parametrize("changes", UNFIT, ids=str)
def test_what_does_not_run_here_is_refused_where_compiling_is_denied(site: Path, changes: dict[str, object]) -> None:
    _, artifact = kernel(CONFIG, **changes)
    lay_out(site).publish("1" * 64, artifact)
    with pytest.raises(KernelNotWarmError, match="jitnorm warm --config"):
        load()


@pytest.mark.parametrize("changes", UNFIT[:-1], ids=str)
def test_what_does_not_run_here_is_compiled_where_that_is_allowed(site: Path, changes: dict[str, object]) -> None:
    key, artifact = kernel(CONFIG, **changes)
    lay_out(site).publish(key, artifact)
    assert load().manifest.get("requires") != changes["requires"]
    assert stored(open_cache()) == 1


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
@pytest.mark.parametrize("mode", ["auto", "deny"])
def test_a_damaged_artifact_is_never_used_and_is_named(
    site: Path, damage: str, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, artifact = kernel(CONFIG)
    store = lay_out(site)
    store.publish(key, artifact)
    payload = store.layout.entry(key) / PAYLOAD
    data = payload.read_bytes()
    if damage == "truncated":
        payload.write_bytes(data[:-1])
    elif damage == "changed":
        payload.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    else:
        payload.unlink()
    monkeypatch.setenv("JITNORM_JIT", mode)
    with caplog.at_level(logging.WARNING):
        if mode == "auto":
            assert load() == artifact
            assert stored(open_cache()) == 1
        else:
            with pytest.raises(KernelNotWarmError):
                load()
    assert f"ignoring the cache entry {store.layout.entry(key)}: " in caplog.text
    assert store.layout.entry(key).exists()


def test_without_a_compiler_the_error_says_how_to_get_one(
    site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, artifact = kernel(CONFIG, requires={"machine": "riscv64"})
    lay_out(site).publish("1" * 64, artifact)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("jitnorm.toolchains.zig.on_sys_path", lambda relative: None)
    with pytest.raises(ToolchainMissingError, match="remedy"):
        load()


def test_it_is_described_by_what_it_serves_here(site: Path) -> None:
    store = lay_out(site)
    fitting, unfit = kernel(CONFIG), kernel("rmsnorm:hidden_size=64", requires={"machine": "riscv64"})
    foreign = kernel("rmsnorm:hidden_size=96", source_key="2" * 64)
    newer = kernel("rmsnorm:hidden_size=128", config="unheard-of:hidden_size=1")
    for number, (_, artifact) in enumerate((fitting, unfit, foreign, newer)):
        store.publish(str(number) * 64, artifact)
    (found,) = map(describe_wheel, wheel_folders([str(site)]))
    assert (found.name, found.version, found.targets) == ("jitnorm-kernels-cpu", "1.0", ("cpu",))
    assert (found.kernels, found.serving, found.problem) == (4, 1, "")
    assert found.refused == {
        "needs machine riscv64, which this machine does not have": 1,
        "generated by another version of jitnorm": 1,
        "has a configuration that this version of jitnorm does not know": 1,
    }
    assert not found.serves_fully
    assert found.payload_bytes > len(fitting[1].payload)


def test_one_that_is_passed_over_is_described_by_the_reason(site: Path) -> None:
    lay_out(site).layout.root.chmod(0o777)
    (found,) = map(describe_wheel, wheel_folders([str(site)]))
    assert "others can write to it" in found.problem
    assert (found.kernels, found.serving) == (0, 0)
