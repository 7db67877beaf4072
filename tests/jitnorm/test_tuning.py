"""Tables of tuned schedules: which calls they serve, when one wins, and that none of them breaks a call."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jitnorm.cache import Artifact, Cache, CacheTrustError, Store, make_key
from jitnorm.kernels.all_reduce_rules import MAX_RANKS
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.row_classes import ROW_CLASSES, classes_of
from jitnorm.kernels.target import Target

from jitnorm import building, kernel_source, manager, misses, tuning
from jitnorm.call_config import config_of_call
from jitnorm.comm.choices import NAME, read_choices
from jitnorm.dispatch import _captured_kernel
from jitnorm.errors import KernelNotReadyError, KernelNotWarmError
from jitnorm.toolchains import ToolchainMissingError
from jitnorm.tune.fit import FittedForms, write_forms
from jitnorm.tune.table import Entry, Table, read_table, write_table
from jitnorm.tuning import schedule_for, stand_ins, tuning_key, user_table, without_user_tables
from jitnorm.warm.expand import configs_of

HOPPER = Target("sm_90a")
CONFIG = KernelConfig("rmsnorm", 4096)


def entry(schedule: str, row_class: str = "usual", config: KernelConfig = CONFIG) -> Entry:
    return Entry(str(tuning_key(config)), row_class, schedule, (1024, 4096), (6.0, 18.0), (5.0, 17.0), (5.0, 16.0))


def table(*entries: Entry, target: str = "sm_90a") -> Table:
    return Table(target, "NVIDIA H200", "580.1", "2026-11-22", entries)


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's table and shipped forms, neither of which is there yet."""
    monkeypatch.delenv("JITNORM_TUNING", raising=False)
    monkeypatch.delenv("JITNORM_BACKEND", raising=False)
    monkeypatch.setattr(tuning, "user_file", lambda target: tmp_path / "user" / f"{target}.json")
    monkeypatch.setattr(tuning, "_SHIPPED", tmp_path / "shipped")
    user_table.cache_clear()
    tuning._forms_in.cache_clear()
    yield
    user_table.cache_clear()
    tuning._forms_in.cache_clear()


def store(user: Table | None = None, **shipped: str) -> None:
    """Write the user's table, and ship forms by class of rows."""
    if user is not None:
        write_table(user, tuning.user_file("sm_90a"))
    if shipped:
        fitted = [FittedForms(str(CONFIG), row_class, forms) for row_class, forms in shipped.items()]
        write_forms({"target": "sm_90a"}, fitted, tuning.forms_file("sm_90a"))
    user_table.cache_clear()
    tuning._forms_in.cache_clear()


def called(row_class: str = "usual", hidden_size: int = 4096, target: Target = HOPPER, **options: object) -> str:
    options = {"op": "rmsnorm", **options}
    return config_of_call(options, target, hidden_size=hidden_size, input="bfloat16", row_class=row_class).schedule


# Which calls a table serves.


def test_a_call_gets_the_schedule_of_its_class() -> None:
    of_classes = ("4x2r2", "8x1r2", "8x1", "4x2", "2x4", "8x1w")
    store(table(*map(entry, of_classes, ROW_CLASSES)))
    assert tuple(map(called, ROW_CLASSES)) == of_classes


def test_what_no_table_lists_is_left_to_the_rules() -> None:
    store(table(entry("4x2")))
    assert called("some") == called(hidden_size=8192) == called(residual=True) == ""
    assert called(target=Target("sm_80")) == called(target=Target("cpu")) == ""


def test_without_tables_only_few_rows_have_a_schedule_of_their_own() -> None:
    assert [called(row_class, 4096) for row_class in classes_of(4096)] == ["8x1wuqlb8", "8x1wuqld", "", "", "", ""]
    assert [called(row_class, 18432) for row_class in classes_of(18432)] == ["40x1wuqlb8", "12x3wq", "", "", "", ""]


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm:hidden_size=4096,input=float16,pdl=true,row_dims=2,unit_bias=true",
        "rmsnorm:hidden_size=4096,rounding=hf",
        "rmsnorm:hidden_size=4096,batched=true,many_rows=true,schedule=4x2",
        "rmsnorm:hidden_size=4096,keep_rstd=true",
    ],
)
def test_kernels_of_one_tuning_key_share_their_measurements(text: str) -> None:
    assert tuning_key(KernelConfig.parse(text)) == CONFIG


def test_statistics_of_rows_that_are_kept_do_not_count() -> None:
    plain, keeping = (KernelConfig("layernorm", 4096, keep_statistics=kept) for kept in (False, True))
    assert tuning_key(keeping) == tuning_key(plain)


def test_codes_share_a_tuning_key_whatever_becomes_of_the_scales() -> None:
    usual = KernelConfig.parse("rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3")
    for quant in ("e2m1/16/e4m3/128x4/given", "e2m1/16/e4m3/linear+8x4/none", "e2m1/16/e4m3/linear/tensor"):
        assert tuning_key(KernelConfig.parse(f"rmsnorm:hidden_size=4096,quant={quant}")) == usual
    for other in (
        "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3/linear/row",
        "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3,residual=true",
        "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3,vector_bytes=4",
        "rmsnorm:hidden_size=4096,quant=e2m1/16/e4m3,batched=true,masked=true",
        "rmsnorm:hidden_size=4096,quant=e2m1/32/ue8m0",
    ):
        assert tuning_key(KernelConfig.parse(other)) != usual


def test_an_activation_without_gates_counts_as_gelu_or_as_none_if_it_is_light() -> None:
    keys = {
        activation: tuning_key(KernelConfig.parse(f"quantize:hidden_size=4096,quant=e2m1/16/e4m3{activation}"))
        for activation in ("", ",activation=gelu", ",activation=gelu_tanh", ",activation=relu2")
    }
    assert keys[",activation=gelu"] == keys[",activation=gelu_tanh"] != keys[""] == keys[",activation=relu2"]
    gelu, relu2 = (
        tuning_key(KernelConfig("quantize", 4096, weight="none", activation=each)) for each in ("gelu", "relu2")
    )
    assert gelu == relu2  # both are bound by memory


def test_all_gates_but_gelu_count_as_silu() -> None:
    of_silu, *others, of_gelu = (
        tuning_key(KernelConfig.parse(f"quantize:hidden_size=4096,gate_columns=4096,activation={each}"))
        for each in ("silu", "gelu_tanh", "relu2", "swish:0.3", "gelu")
    )
    assert all(each == of_silu for each in others)
    assert of_gelu != of_silu


def test_experts_share_the_tuning_key_of_their_rows_and_masks_have_one_of_their_own() -> None:
    masked, of_experts, gathered = (
        tuning_key(KernelConfig.parse(f"quantize:hidden_size=4096,quant=e2m1/16/e4m3{rest}"))
        for rest in (",batched=true,masked=true", "/128x4/given,experts=8,scale_per_matrix=true", ",gathers=true")
    )
    assert masked != of_experts == gathered == KernelConfig.parse("quantize:hidden_size=4096,quant=e2m1/16/e4m3")


def test_what_is_warmed_is_what_calls_run() -> None:
    store(table(entry("4x2"), entry("8x1r2", "few")))
    schedules = {config.schedule for config in configs_of("rmsnorm", {"hidden_size": 4096}, HOPPER)}
    assert schedules == {called(each) for each in classes_of(4096)} == {"8x1wuqlb8", "8x1r2", "4x2", ""}


def test_few_rows_that_are_warmed_include_the_fewest() -> None:
    found = {size: configs_of("rmsnorm", {"hidden_size": size, "row_class": "few"}, HOPPER) for size in (2048, 18432)}
    assert [config.schedule for config in found[2048]] == [called("few", 2048)]
    assert [config.schedule for config in found[18432]] == [called("fewest", 18432), called("few", 18432)]


# What wins.


def test_the_user_s_table_comes_before_shipped_forms() -> None:
    store(user=table(entry("8x1r2")), usual="2:2", many="2:4")
    assert (called(), called("many")) == ("8x1r2", "2x4")


def test_the_user_s_table_may_say_that_the_rules_are_best() -> None:
    store(user=table(entry("")), usual="2:2")
    assert called() == ""


def test_tables_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    store(table(entry("4x2")))
    monkeypatch.setenv("JITNORM_TUNING", "off")
    assert called() == ""
    monkeypatch.setenv("JITNORM_TUNING", "on")
    assert called() == "4x2"
    monkeypatch.setenv("JITNORM_TUNING", "never")
    with pytest.raises(ValueError, match="JITNORM_TUNING: is 'never'; allowed are on, shipped, off"):
        called()


def test_the_user_s_table_can_be_left_aside_for_what_others_will_use(monkeypatch: pytest.MonkeyPatch) -> None:
    store(user=table(entry("8x1r2")), usual="2:2")
    with without_user_tables():
        assert called() == "4x2"
    assert called() == "8x1r2"
    monkeypatch.setenv("JITNORM_TUNING", "shipped")
    assert called() == "4x2"
    monkeypatch.setenv("JITNORM_TUNING", "off")
    with without_user_tables():
        assert called() == ""
    assert called() == ""


# What may be wrong with them.


def test_a_schedule_that_does_not_fit_is_not_used() -> None:
    key = (str(tuning_key(CONFIG)), "usual")
    assert schedule_for(CONFIG, HOPPER, "usual", {key: "8x1"}) == "8x1"
    assert schedule_for(CONFIG, HOPPER, "usual", {key: "4x1"}) == ""
    assert schedule_for(CONFIG, Target("sm_80"), "usual", {key: "8x1b2"}) == ""


def test_a_table_with_a_schedule_that_is_not_known_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    of_later_version = entry("4x2")
    object.__setattr__(of_later_version, "schedule", "4x2z9")
    store(user=table(of_later_version), usual="2:1")
    assert called() == "8x1"
    assert f"ignoring the schedules in {tuning.user_file('sm_90a')}" in caplog.text


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "null", '"text"', '{"sha256": "0", "entries": []}'])
def test_a_file_that_is_no_table_is_ignored_with_a_warning(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    store(usual="2:2")
    path = tuning.user_file("sm_90a")
    path.parent.mkdir()
    path.write_text(damage)
    assert called() == "4x2"
    assert f"ignoring the schedules in {path}: it is " in caplog.text


def test_a_table_that_was_changed_by_hand_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    store(table(entry("4x2")))
    path = tuning.user_file("sm_90a")
    assert "580.1" in path.read_text()
    path.write_text(path.read_text().replace("580.1", "590.1"))
    assert called() == ""
    assert "does not match its digest" in caplog.text


def test_a_table_that_has_grown_is_ignored_unread(caplog: pytest.LogCaptureFixture) -> None:
    store(user=table(entry("4x2")), usual="2:1")
    os.truncate(tuning.user_file("sm_90a"), 1 << 40)
    assert called() == "8x1"
    assert f"ignoring the schedules in {tuning.user_file('sm_90a')}" in caplog.text


@pytest.mark.parametrize("place", ["", "v1", "v1/tuning", "v1/tuning/sm_90a.json"])
def test_a_table_that_others_can_write_is_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Store(tmp_path / "cache")
    monkeypatch.setenv("JITNORM_CACHE_DIR", str(cache.layout.root))
    monkeypatch.setattr(tuning, "user_file", cache.layout.tuning)
    monkeypatch.setattr("jitnorm.store.user_store", lambda: cache)
    store(user=table(entry("4x2")))
    (cache.layout.root / place).chmod(0o777)
    with pytest.raises(CacheTrustError, match=f"others can write to it.*chmod -R go-w {cache.layout.root};"):
        called()
    with pytest.raises(CacheTrustError):
        read_table(tuning.user_file("sm_90a"))
    subprocess.run(["chmod", "-R", "go-w", str(cache.layout.root)], check=True, timeout=30)
    assert called() == "4x2"


def test_a_table_of_another_target_does_not_count() -> None:
    store(table(entry("4x2"), target="sm_100a"))
    assert called() == ""


def test_a_table_reads_back_and_new_entries_replace_old_ones(tmp_path: Path) -> None:
    first = table(entry("4x2"), entry("2x4", "many"))
    path = tmp_path / "new" / "table.json"
    write_table(first, path)
    assert read_table(path) == first
    assert [file.name for file in path.parent.iterdir()] == ["table.json"]
    assert len(path.read_text().splitlines()) == 7 + 2 + 2, "an entry is a line"
    both = first.with_entries([entry("8x1", "many")])
    assert [each.schedule for each in both.entries] == ["8x1", "4x2"]
    with pytest.raises(ValueError, match="row_class: is 'most'"):
        entry("4x2", "most")
    with pytest.raises(ValueError, match="schedule: is 'fast'"):
        entry("fast")


def test_the_choices_over_ranks_that_are_shipped_fit() -> None:
    path = Path(tuning.__file__).parent / "data" / "tuning" / f"{NAME}.json"
    assert all(each.ranks <= MAX_RANKS and each.date for each in read_choices(path))


# What was warmed before tuning, or after.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty cache where nothing may be compiled."""

    def missing(*_: object, **__: object) -> None:
        raise ToolchainMissingError("a compiler", ["nowhere"], "install one")

    monkeypatch.setenv("JITNORM_JIT", "deny")
    monkeypatch.setattr(misses, "_recorded", {})
    monkeypatch.setattr(building, "select", missing)
    return Cache(Store(tmp_path / "cache"))


def publish(cache: Cache, config: KernelConfig) -> None:
    source = kernel_source.source_for(config, HOPPER, "nvrtc")
    recipe = kernel_source.recipe_text(config, HOPPER)
    manifest = {
        "kind": "kernel",
        "config": str(config),
        "source_key": kernel_source.kernel_source_key(source),
        "recipe": recipe,
    }
    cache.store.publish(make_key({"config": str(config)}), Artifact(b"code", manifest))


def served(cache: Cache, config: KernelConfig) -> str:
    found = manager.load_or_build_kernel(config, HOPPER, cache)
    return KernelConfig.parse(found.manifest["config"]).schedule


def test_where_nothing_is_compiled_the_untuned_kernel_serves(cache: Cache) -> None:
    store(table(entry("4x2")))
    tuned = replace(CONFIG, schedule="4x2")
    with pytest.raises(KernelNotWarmError, match="schedule=4x2"):
        served(cache, tuned)
    publish(cache, CONFIG)
    assert served(cache, tuned) == ""
    publish(cache, tuned)
    assert served(cache, tuned) == "4x2"


def test_where_nothing_is_compiled_the_kernel_of_a_form_serves(cache: Cache) -> None:
    store(user=table(entry("8x1r2")), few="2:2")
    publish(cache, replace(CONFIG, schedule="4x2"))
    assert served(cache, replace(CONFIG, schedule="8x1r2")) == "4x2"
    assert served(cache, CONFIG) == "4x2"


def test_during_a_capture_what_is_loaded_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    store(table(entry("4x2", "few")))
    few = replace(CONFIG, schedule="4x2")
    with pytest.raises(KernelNotReadyError, match="is not loaded, and loading it would break"):
        _captured_kernel(few, HOPPER)
    monkeypatch.setattr(manager, "_kernels", {(CONFIG, HOPPER, "auto"): "usual"})
    assert _captured_kernel(few, HOPPER) == "usual"


def test_stand_ins_fit_and_are_named_once() -> None:
    store(user=table(entry("8x1r2"), entry("9x9", "few")), usual="2:2", many="2:1r2")
    assert [each.schedule for each in stand_ins(replace(CONFIG, schedule="4x2"), HOPPER)] == [
        "",
        "8x1wuqlb8",
        "8x1r2",
        "8x1wuqld",
    ]
    assert list(stand_ins(CONFIG, Target("cpu"))) == []


def test_scales_given_for_parts_of_a_tensor_are_work_of_their_own() -> None:
    for block_size in ("column", "128x128", "row"):
        config = KernelConfig.parse(f"rmsnorm:hidden_size=256,quant=e4m3/{block_size}/f32/linear/given")
        assert tuning_key(config) == config
