"""A repeated call finds its kernel by looking up its options: nothing is validated or constructed again."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import op_calls
import pytest
from forgetful import forget_dispatchers
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec, require_one_of

import jitnorm
from jitnorm.dispatch import Dispatcher
from jitnorm.ffi import tvm_ffi

# What takes microseconds and gives the same for the same options.
CONSTRUCTION: dict[CodeType, str] = {
    function.__code__: name
    for name, function in {
        "QuantSpec()": QuantSpec.__init__,
        "KernelConfig()": KernelConfig.__init__,
        "Dispatcher()": Dispatcher.__init__,
        "replace": dataclasses.replace,
        "require_one_of": require_one_of,
    }.items()
}


@pytest.fixture
def kernels_that_do_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace kernels by ones that do nothing, without compiling."""
    forget_dispatchers()
    nothing = tvm_ffi().convert(lambda *_: None)
    monkeypatch.setattr("jitnorm.dispatch.get_kernel", lambda *_: nothing)
    yield
    forget_dispatchers()


def constructed_by(call: Any) -> set[str]:
    """The functions of `CONSTRUCTION` that a call runs."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in CONSTRUCTION:
            found.add(CONSTRUCTION[frame.f_code])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_the_first_call_constructs(kernels_that_do_nothing: None) -> None:
    first = next(call for call in op_calls.calls() if call.op == "rmsnorm_fp4quant")
    assert constructed_by(first.prepared(1)) >= {"QuantSpec()", "KernelConfig()", "Dispatcher()", "require_one_of"}


@pytest.mark.parametrize("name", sorted({call.op for call in op_calls.calls()}))
def test_a_call_like_one_before_constructs_nothing(name: str, kernels_that_do_nothing: None) -> None:
    for call in op_calls.calls():
        if call.op == name:
            prepared = call.prepared(1)
            prepared()
            assert constructed_by(prepared) == set(), call.choices


def test_an_option_that_only_equals_one_seen_before_is_refused(kernels_that_do_nothing: None) -> None:
    jitnorm.fp4_quantize(op_calls.new((1, 64)), sf_vec_size=16)
    with pytest.raises(ValueError, match=r"sf_vec_size: is 16\.0; allowed are 16, 32"):
        jitnorm.fp4_quantize(op_calls.new((1, 64)), sf_vec_size=16.0)  # type: ignore[arg-type]
