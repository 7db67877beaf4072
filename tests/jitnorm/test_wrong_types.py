"""Values of the wrong type raise an error that names the argument, what it is and what is allowed; none is compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jitnorm.kernels.config import KernelConfig

import jitnorm
from jitnorm import comm, manager

X, W = np.ones((4, 64), np.float16), np.ones(64, np.float16)
STREAMS, MIXES, NUMBERS = np.ones((4, 2, 64), np.float16), np.ones((4, 8), np.float32), np.ones(8, np.float32)
TEXT = "rmsnorm:hidden_size=64,input=float16"
WRONG: Any = "yes"


def read_only() -> np.ndarray[Any, Any]:
    return np.broadcast_to(W, X.shape)


def workspace(**sizes: Any) -> comm.Workspace:
    return comm.Workspace.from_exchange(0, 2, lambda text: [text, text], **{"max_rows": 4, "hidden_size": 64, **sizes})


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a kernel was asked for")

    monkeypatch.setattr(manager, "load_or_build_kernel", refuse)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: jitnorm.rmsnorm(WRONG, W), TypeError, "input: is a str; expected a tensor of torch, NumPy"),
        (lambda: jitnorm.rmsnorm(X, WRONG), TypeError, "weight: is a str; expected a tensor"),
        (lambda: jitnorm.rmsnorm(X, W, WRONG), TypeError, "eps: is a str; expected a number"),
        (lambda: jitnorm.rmsnorm(X, W, None), TypeError, "eps: is None; expected a number"),
        (lambda: jitnorm.rmsnorm(X, W, X), TypeError, "eps: is a tensor; expected a number"),
        (lambda: jitnorm.rmsnorm(X, W, 1 << 64), TypeError, "eps: is an integer of more than 64 bits; expected a"),
        (lambda: jitnorm.rmsnorm(X, W, stream=1 << 64), TypeError, "stream: is an integer of more than 64 bits; ex"),
        (lambda: jitnorm.rmsnorm(X, W, enable_pdl=WRONG), ValueError, "enable_pdl: is 'yes'; allowed are None, True"),
        (lambda: jitnorm.rmsnorm(X, W, rounding=WRONG), ValueError, "rounding: is 'yes'; allowed are 'once', 'output'"),
        (
            lambda: jitnorm.norm_quantize(X, W, spec=jitnorm.NVFP4, unit_bias=WRONG),
            ValueError,
            "unit_bias: is 'yes'; allowed are True and False",
        ),
        (
            lambda: jitnorm.quantize(X, spec=jitnorm.NVFP4, activation=3),
            ValueError,
            "activation: is 3; allowed are 'silu', 'gelu'",
        ),
        (lambda: jitnorm.fused_add_rmsnorm(X, X, W), ValueError, "input: overlaps the memory of residual; give it"),
        (lambda: jitnorm.fused_add_rmsnorm(read_only(), X, W), ValueError, "input: is read-only; expected a writable"),
        (
            lambda: jitnorm.norm_quantize(X, W, spec=jitnorm.NVFP4, residual=read_only()),
            ValueError,
            "residual: is read-only; expected a writable",
        ),
        (lambda: jitnorm.get_kernel(None), TypeError, "config: is None; expected a KernelConfig or its text"),
        (lambda: jitnorm.get_kernel(TEXT, 90), TypeError, "target: is 90; expected a Target or its name"),
        (lambda: jitnorm.QuantSpec.parse(5), TypeError, "text: is 5; expected a text, such as 'e2m1/16/e4m3'"),
        (lambda: KernelConfig("rmsnorm", WRONG), ValueError, "hidden_size: is 'yes'; allowed are whole numbers"),
        (lambda: KernelConfig("rmsnorm", 64.0), ValueError, "hidden_size: is 64.0; allowed are whole numbers"),
        (lambda: KernelConfig("rmsnorm", 64, pdl=1), ValueError, "pdl: is 1; allowed are True and False"),
        (
            lambda: KernelConfig("rmsnorm", 64, gate_columns=True),
            ValueError,
            "gate_columns: is True; allowed are whole",
        ),
        (lambda: jitnorm.shuffle_matrix_a(X, WRONG), TypeError, "epilogue_tile_m: is 'yes'; expected a whole number"),
        (
            lambda: jitnorm.quantize(X, spec=jitnorm.MXFP8, global_scale=NUMBERS[:1]),
            ValueError,
            "global_scale: is given, but e4m3/32/ue8m0/linear/none has none; pass None",
        ),
        (
            lambda: jitnorm.quantize_weight(X, spec=jitnorm.MXFP8),
            ValueError,
            "spec: is e4m3/32/ue8m0/linear/none; expected e2m1 in the linear layout",
        ),
        (lambda: jitnorm.sum_rows(MIXES, WRONG), ValueError, "dtype: is 'yes'; allowed are 'float16', 'bfloat16'"),
        (lambda: jitnorm.rmsnorm_bias_backward(X, X, None), TypeError, "weight: is None; expected a tensor"),
        (
            lambda: jitnorm.adaptive_layernorm(X, X, X, residual_out=X.copy()),
            ValueError,
            "residual_out: is given, but residual is None; pass both or neither",
        ),
        (
            lambda: jitnorm.adaptive_layernorm_quantize(X, X, X, spec=jitnorm.MXFP8, residual_out=X.copy()),
            ValueError,
            "residual_out: is given, but residual is None; pass both or neither",
        ),
        (
            lambda: jitnorm.mhc_pre_with_prenorm(STREAMS, MIXES, NUMBERS[:3], NUMBERS, sinkhorn_rounds=0),
            ValueError,
            "sinkhorn_rounds: is 0; expected an int from 1 to 100",
        ),
        (
            lambda: jitnorm.rope(X[:, None], X[:, None], np.ones((4, 3), np.float16), np.zeros(4, np.int64)),
            ValueError,
            "cos_sin_cache: shape is (4, 3); expected (max_position, rotary_size), of which the second is even",
        ),
        (lambda: jitnorm.from_named_tensors(3, {}), TypeError, "tensors: is an int; expected a mapping"),
        (lambda: jitnorm.from_named_tensors({}, WRONG), TypeError, "metadata: is a str; expected a mapping"),
        (lambda: jitnorm.to_named_tensors([X]), TypeError, "values: is a list; expected tensors by name"),
        (lambda: workspace(max_rows=WRONG), ValueError, "max_rows: is 'yes'; whole numbers of 1 to 524288 are allowed"),
        (lambda: workspace(hidden_size=0), ValueError, "hidden_size: is 0; whole numbers of 1 to 262144 are allowed"),
        (lambda: workspace(deadline=WRONG), ValueError, "deadline: is 'yes'; seconds, more than 0 and up to 3600"),
        (
            lambda: workspace(one_shot_rows=0),
            ValueError,
            "one_shot_rows: is 0; whole numbers of at least 1 are allowed",
        ),
        (lambda: comm.all_reduce_norm_quantize(X, W, None), TypeError, "workspace: is None; expected a comm.Workspace"),
    ],
)
def test_a_wrong_type_is_an_error_that_names_the_argument(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_integers_of_numpy_make_the_same_configuration() -> None:
    config = KernelConfig("rmsnorm", np.int64(64))  # type: ignore[arg-type]
    assert (config, str(config)) == (KernelConfig("rmsnorm", 64), str(KernelConfig("rmsnorm", 64)))
