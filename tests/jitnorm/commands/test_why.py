"""`jitnorm cache why`: a hit with its tier, or a miss with the nearest entries and their differences."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cache_entries import Answer, Invoke
from jitnorm.cache import Artifact, Store
from jitnorm.cache.uses import release_uses
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.target import Target

from jitnorm.building import toolchain_for
from jitnorm.kernel_source import kernel_key, kernel_source_key, recipe_text, source_for
from jitnorm.manager import load_or_build_kernel
from jitnorm.misses import record_file
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.warm.expand import configs_of_text

CONFIG = "rmsnorm:hidden_size=64"
CPU = Target("cpu")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a real kernel for the CPU."""
    place = tmp_path_factory.mktemp("built")
    store = Store(place)
    load_or_build_kernel(KernelConfig.parse(CONFIG), CPU, store)
    release_uses(store.layout)
    return place


@pytest.fixture
def kernel(built: Path, folder: Path) -> Store:
    """The user's cache with only this kernel."""
    shutil.copytree(built, folder)
    return Store(folder)


def publish_as_built(store: Store, config: KernelConfig, target: Target) -> None:
    """Publish a kernel as this machine's toolchain would have built it, or another's if it has none."""
    source = source_for(config, target, "c++")
    manifest = {
        "kind": "kernel", "config": str(config), "target": str(target), "backend": "nvrtc",
        "recipe": recipe_text(config, target), "source_key": kernel_source_key(source),
    }  # fmt: skip
    try:
        key = kernel_key(source, toolchain_for(config, target, store))
    except ToolchainMissingError:
        key = kernel_source_key(source)
    store.publish(key, Artifact(b"code", manifest))
    release_uses(store.layout)


def key_of(store: Store) -> str:
    (entry,) = store.entries()
    return entry.key


def change(store: Store, **fields: Any) -> None:
    """Republish a store's only kernel with another manifest under another key, as another builder would have."""
    (entry,) = store.entries()
    artifact = store.load(entry.key)
    assert artifact is not None
    shutil.rmtree(store.layout.entry(entry.key))
    store.publish("f" * 64, Artifact(artifact.payload, {**artifact.manifest, **fields}))
    release_uses(store.layout)


def differences(found: Any) -> dict[str, tuple[str, str]]:
    (near,) = found["nearest"]
    return {each["field"]: (each["wanted"], each["found"]) for each in near["differences"]}


def test_a_hit_names_its_key_and_its_tier(kernel: Store, answer: Answer, invoke: Invoke) -> None:
    found = answer("cache", "why", CONFIG, "--arch", "cpu")
    assert (found["is_hit"], found["tier"], found["key"], found["nearest"]) == (True, kernel.name, key_of(kernel), [])
    assert found["found_key"] == found["key"]
    assert found["asked"] == {kernel.name: "found"}
    assert f"hit in {kernel.name}" in invoke("cache", "why", CONFIG, "--arch", "cpu").stdout


def test_tiers_are_asked_in_their_order_and_every_one_says_what_it_answered(
    kernel: Store, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.move(kernel.layout.root, tmp_path / "bucket")
    monkeypatch.setenv("JITNORM_REMOTE_CACHE", f"file://{tmp_path / 'bucket'}")
    found = answer("cache", "why", CONFIG, "--arch", "cpu")
    assert found["tier"] == f"remote file://{tmp_path / 'bucket'}"
    assert list(found["asked"].values()) == ["not there", "found"]
    assert not list(kernel.entries()), "a question copies nothing"


def test_a_miss_in_an_empty_cache_says_what_a_call_does_and_what_warms_it(folder: Path, invoke: Invoke) -> None:
    result = invoke("cache", "why", CONFIG, "--arch", "cpu")
    assert result.exit_code == 1
    assert "miss: a call compiles it" in result.stdout
    assert result.stdout.rstrip().endswith("jitnorm warm --config rmsnorm:hidden_size=64 --arch cpu")


def test_nothing_is_built_and_nothing_recorded(folder: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    found = answer("cache", "why", CONFIG, "--arch", "cpu", exit_code=1)
    assert found["mode"] == "deny"
    record = record_file(Store(folder))
    assert record is not None
    assert not record.exists()
    assert list(Store(folder).entries()) == []


def test_another_configuration_is_near_with_the_fields_that_differ(kernel: Store, answer: Answer) -> None:
    wanted = "rmsnorm:hidden_size=128,input=float16"
    found = answer("cache", "why", wanted, "--arch", "cpu", exit_code=1)
    assert differences(found) == {
        "hidden_size": ("128", "64"),
        "input": ("float16", "bfloat16"),
        "weight": ("float16", "bfloat16"),
    }


def test_another_target_is_near_and_its_compiler_is_no_difference(kernel: Store, answer: Answer) -> None:
    found = answer("cache", "why", CONFIG, "--arch", "sm_90a", exit_code=1)
    assert differences(found) == {"target": ("sm_90a", "cpu"), "pdl": ("true", "false")}


def test_what_a_text_leaves_open_is_answered_for_every_kernel_that_calls_want(
    kernel: Store, answer: Answer, invoke: Invoke
) -> None:
    target, text = Target("sm_90a"), "rmsnorm:hidden_size=4096"
    wanted = configs_of_text(text, target)
    assert len(wanted) > 1
    for config in wanted[:-1]:
        publish_as_built(kernel, config, target)
    missed = answer("cache", "why", text, "--arch", "sm_90a", exit_code=1)
    assert [each["is_hit"] for each in missed["calls"]] == [True] * (len(wanted) - 1) + [False]
    assert (missed["config"], missed["is_hit"]) == (str(wanted[-1]), False)
    publish_as_built(kernel, wanted[-1], target)
    found = answer("cache", "why", text, "--arch", "sm_90a")
    assert [each["config"] for each in found["calls"]] == [str(config) for config in wanted]
    assert invoke("cache", "why", text, "--arch", "sm_90a").stdout.count("hit in") == len(wanted)
    # The text of one kernel is answered for that one.
    assert len(answer("cache", "why", str(wanted[0]), "--arch", "sm_90a")["calls"]) == 1


def test_where_nothing_is_compiled_a_kernel_of_another_schedule_is_a_hit_that_is_named(
    kernel: Store, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITNORM_JIT", "deny")
    untuned = KernelConfig("rmsnorm", 4096, pdl=True)
    publish_as_built(kernel, untuned, Target("sm_90a"))
    text = str(replace(untuned, schedule="4x2wu"))
    found = answer("cache", "why", text, "--arch", "sm_90a")
    assert (found["is_hit"], found["found_config"]) == (True, str(untuned))
    assert found["asked"] == {kernel.name: "found with the rules' schedule"}
    assert "only its schedule differs" in invoke("cache", "why", text, "--arch", "sm_90a").stdout


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"toolchain": "g++ 1.0"}, "toolchain"),
        ({"flags": ["-O0"]}, "flags"),
        ({"source_key": "1" * 64, "source_sha256": "2" * 64}, "source"),
    ],
)
def test_another_builder_is_near_with_what_it_did_otherwise(
    kernel: Store, answer: Answer, fields: dict[str, Any], field: str
) -> None:
    change(kernel, **fields)
    found = answer("cache", "why", CONFIG, "--arch", "cpu", exit_code=1)
    assert differences(found).keys() == {field}


def test_a_source_by_another_version_is_called_so(kernel: Store, answer: Answer, invoke: Invoke) -> None:
    recipe = json.loads(next(kernel.entries()).manifest["recipe"])
    change(kernel, recipe=json.dumps({**recipe, "abi": 1}), source_key="1" * 64, source_sha256="2" * 64)
    shown = invoke("cache", "why", CONFIG, "--arch", "cpu").stdout
    assert "generated by another version of jitnorm" in shown
    assert differences(answer("cache", "why", CONFIG, "--arch", "cpu", exit_code=1)).keys() == {
        "launcher_abi",
        "recipe",
        "source",
    }


def test_a_configuration_of_a_version_with_other_fields_is_shown_as_it_is(kernel: Store, answer: Answer) -> None:
    change(kernel, config="rmsnorm:warp_size=3")
    found = answer("cache", "why", CONFIG, "--arch", "cpu", exit_code=1)
    assert differences(found)["config"][1] == "rmsnorm:warp_size=3"


def test_where_nothing_may_be_compiled_another_compilers_artifact_is_a_hit(
    kernel: Store, answer: Answer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = kernel.entries()
    change(kernel, toolchain="g++ 1.0")
    assert not answer("cache", "why", CONFIG, "--arch", "cpu", exit_code=1)["is_hit"]
    monkeypatch.setenv("JITNORM_JIT", "deny")
    found = answer("cache", "why", CONFIG, "--arch", "cpu")
    assert (found["key"], found["found_key"]) == (entry.key, "f" * 64)
    assert "another compiler built from the same source" in invoke("cache", "why", CONFIG, "--arch", "cpu").stdout


def test_without_a_compiler_there_is_no_key_but_the_source_is_looked_up(
    kernel: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = answer("cache", "why", CONFIG, "--arch", "cpu")
    assert (found["key"], found["toolchain"], found["found_key"]) == (None, None, key_of(kernel))


def spoil_payload(store: Store) -> None:
    (store.layout.entry(key_of(store)) / "payload").write_bytes(b"?")


def quarantine(store: Store) -> None:
    key = key_of(store)
    spoil_payload(store)
    assert store.load(key) is None


def need_another_machine(store: Store) -> None:
    (entry,) = store.entries()
    artifact = store.load(entry.key)
    assert artifact is not None
    shutil.rmtree(store.layout.entry(entry.key))
    store.publish(entry.key, Artifact(artifact.payload, {**artifact.manifest, "requires": {"machine": "pdp11"}}))


@pytest.mark.parametrize(
    ("spoil", "reply"),
    [
        (spoil_payload, "there, but refused: payload has 1 bytes instead of "),
        (quarantine, "not there; quarantine holds 1 damaged entries with this key"),
        (need_another_machine, "there, but it needs machine pdp11, which this machine does not have"),
    ],
)
def test_an_entry_that_is_there_but_cannot_be_used_says_why(
    kernel: Store, answer: Answer, spoil: Callable[[Store], None], reply: str
) -> None:
    spoil(kernel)
    found = answer("cache", "why", CONFIG, "--arch", "cpu", exit_code=1)
    assert found["asked"][kernel.name].startswith(reply)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["softmax:hidden_size=64"], "error: op: is 'softmax'"),
        ([CONFIG, "--target", "sm_1"], "error: target: 'sm_1' is not known"),
        ([CONFIG, "--target", "cpu", "--backend", "nvcc"], "error: backend: 'nvcc' does not build for cpu"),
    ],
)
def test_wrong_arguments_are_wrong_usage(folder: Path, invoke: Invoke, arguments: list[str], message: str) -> None:
    result = invoke("cache", "why", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
