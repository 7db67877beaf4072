"""scripts/sanitize.py names kernels that exist, which only a GPU would launch."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.target import Target


def named_kernels() -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sanitize.py"])
        script = import_module("sanitize")
    groups = (script.OF_MANY_ROWS, script.OF_FORMS, script.SIDE_BY_SIDE, script.TABULATED, script.IN_CLUSTERS)
    return [text for group in groups for _, text in group]


@pytest.mark.parametrize("text", named_kernels())
def test_named_kernels_have_schedules_that_fit(text: str) -> None:
    config = KernelConfig.parse(text)
    assert str(row_schedule(config, Target("sm_90a"))).startswith(config.schedule)
