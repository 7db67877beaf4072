"""Target: a GPU or the CPU, identified by name and by compute capability."""

from __future__ import annotations

import pytest
from jitnorm.kernels.target import TARGET_NAMES, Target


def test_a_target_is_known_by_name_and_by_capability() -> None:
    for name in TARGET_NAMES:
        assert str(Target(name)) == name
        assert Target(name).is_cpu == (name == "cpu")
        if name != "cpu":
            own = Target.of_capability(*Target(name).capability)
            assert own == Target(name) or (Target(name).is_family and own.family == Target(name))


def test_a_family_has_the_targets_of_one_major_version() -> None:
    families = {name: str(Target(name).family) for name in TARGET_NAMES if Target(name).family is not None}
    assert families == {"sm_100a": "sm_100f", "sm_103a": "sm_100f", "sm_120a": "sm_120f", "sm_121a": "sm_120f"}
    assert [name for name in TARGET_NAMES if Target(name).is_family] == ["sm_100f", "sm_120f"]
    assert (Target("sm_100f").capability, Target("sm_120f").capability) == ((10, 0), (12, 0))


@pytest.mark.parametrize("name", ["sm_70", "sm_90", "sm_90f", "sm_103f", "gpu", "", "SM_90a"])
def test_an_unknown_target_names_the_known_ones(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"target: '{name}' is not known; use one of cpu, sm_80, .*sm_121a, sm_100f, sm_120f"
    ):
        Target(name)


def test_an_unknown_capability_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"device: compute capability 7\.5 is not supported; supported are 8\.0, "):
        Target.of_capability(7, 5)


def test_the_features_begin_with_their_generation() -> None:
    assert [name for name in TARGET_NAMES if not Target(name).has_native_e4m3] == ["cpu", "sm_80", "sm_86"]
    assert [name for name in TARGET_NAMES if not Target(name).has_pdl] == ["cpu", "sm_80", "sm_86", "sm_89"]
    blackwell = ["sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a", "sm_100f", "sm_120f"]
    assert [name for name in TARGET_NAMES if Target(name).has_native_e2m1] == blackwell
    data_center = ["sm_100a", "sm_103a", "sm_110a", "sm_100f"]
    assert [name for name in TARGET_NAMES if Target(name).has_max_of_three] == data_center
    assert [name for name in TARGET_NAMES if Target(name).has_mixed_precision] == blackwell
    assert [name for name in TARGET_NAMES if Target(name).has_packed_floats] == ["sm_100a", "sm_103a", "sm_100f"]
