"""Sums over ranks and what follows them, on the CPU: the bytes of the reference, on every rank, in every format."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from encoded import BLOCKINGS, assert_encoded, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from inputs import INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec
from jitnorm.kernels.schedule import row_schedule
from jitnorm.kernels.target import Target
from ranks import Exchange, Processes

from jitnorm import comm
from jitnorm.comm import CommError
from jitnorm.comm.threads import on_threads
from jitnorm.reference import layernorm_f32, rank_sum_f32, rmsnorm_f32, round_to

ROUNDINGS: Any = ("once", "hf", "vllm", "output")
SPECS = [spec for spec in BLOCKINGS if not spec.needs_tensor_amax]


def workspace(rank: int, exchange: Exchange, ranks: int, **options: Any) -> comm.Workspace:
    sizes: dict[str, Any] = {"max_rows": 16, "hidden_size": 1024, "dtype": "float16"}
    return comm.Workspace.from_exchange(rank, ranks, exchange, **{**sizes, **options})


def shares_of(kind: str, ranks: int, rows: int, size: int, dtype: str) -> list[Any]:
    """The input of each rank, with zeros of both signs."""
    shares = [make_input(kind, rows, size, dtype, rank) for rank in range(ranks)]
    for share in shares:
        share[:, ::3] = -0.0
        share[:, 1::7] = 0.0
    return shares


@pytest.mark.parametrize(
    ("ranks", "size", "dtype", "rounding", "method", "round_sum"),
    [
        (2, 1, "float16", "once", "two_shot", False),
        (3, 17, "bfloat16", "hf", "one_shot", True),
        (4, 513, "float32", "vllm", "sharded", False),
        (5, 1000, "float16", "once", "two_shot", True),
        (2, 17, "bfloat16", "vllm", "not_fused", True),
        (4, 512, "float32", "once", "not_fused", True),
        (8, 1000, "bfloat16", "hf", "one_shot", False),
    ],
)
def test_all_ranks_have_the_bytes_of_the_reference(
    ranks: int, size: int, dtype: str, rounding: Any, method: str, round_sum: bool
) -> None:
    adds = method == "sharded" or ranks > 3
    weight = make_weight(size, dtype)
    cases = []
    for number, kind in enumerate(INPUT_KINDS):
        rows = (3, 16, 1, 7)[number % 4]
        cases.append((shares_of(kind, ranks, rows, size, dtype), make_input("random", rows, size, dtype, 9)))

    def work(rank: int, exchange: Exchange) -> list[Any]:
        own, found = workspace(rank, exchange, ranks, dtype=dtype, output_bytes=1 << 20), []
        for shares, residual in cases:
            made = comm.all_reduce_norm_quantize(
                shares[rank], weight, own, residual=residual if adds else None, rounding=rounding,
                round_sum=round_sum, method=method,
            )  # fmt: skip
            found.append([None if each is None else each.copy() for each in made])
        return found

    for rank, found in enumerate(on_threads(ranks, work)):
        for (shares, residual), (out, total, norm) in zip(cases, found, strict=True):
            s, added = rank_sum_f32(shares, round_sum=round_sum), {"residual": residual if adds else None}
            y = rmsnorm_f32(s, weight.astype(np.float32), **added, rounding=rounding, dtype=shares[0].dtype)
            assert norm is None
            assert_same_bytes(out, round_to(y, shares[0].dtype))
            if adds:
                expected = round_to(s + residual.astype(np.float32), residual.dtype)
                rows = len(residual)
                own = (
                    slice(rank * -(-rows // ranks), (rank + 1) * -(-rows // ranks))
                    if method == "sharded"
                    else slice(rows)
                )
                assert_same_bytes(total[own], expected[own])
            else:
                assert total is None


@pytest.mark.parametrize(
    ("spec", "unit_bias", "method"), in_turn(SPECS[::6], (False, True), ("one_shot", "two_shot", "not_fused")), ids=str
)
def test_it_is_encoded(spec: QuantSpec, unit_bias: bool, method: str) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    shares, weight = shares_of("real", 2, 5, size, dtype), make_weight(size, dtype)
    residual = make_input("random", 5, size, dtype, 9)

    def work(rank: int, exchange: Exchange) -> comm.Reduced:
        own = workspace(rank, exchange, 2, dtype=dtype, output_bytes=1 << 20)
        options: dict[str, Any] = {"unit_bias": unit_bias, "keep_norm": True, "method": method, **given_keywords(spec)}
        return comm.all_reduce_norm_quantize(shares[rank], weight, own, residual=residual, **options)

    h = rank_sum_f32(shares) + residual.astype(np.float32)
    y = rmsnorm_f32(h, weight.astype(np.float32), weight_bias=float(unit_bias))
    for q, total, norm in on_threads(2, work):
        assert_encoded(q, y, spec, (5, size), str(spec))
        assert_same_bytes(norm, round_to(y, residual.dtype))
        assert_same_bytes(total, round_to(h, residual.dtype))


def test_calls_of_all_methods_follow_one_another() -> None:
    """Whatever a call has used is ready again when a later call needs it."""
    x, weight = make_input("random", 16, 64, "float16"), make_weight(64, "float16")
    rng = np.random.default_rng(0)
    methods = [("one_shot", False), ("two_shot", False), ("two_shot", True), ("sharded", True), ("not_fused", True)]
    calls = [(*methods[rng.integers(len(methods))], int(rng.integers(1, 17))) for _ in range(60)]

    def work(rank: int, exchange: Exchange) -> bool:
        own, delays = workspace(rank, exchange, 3, output_bytes=1 << 20), np.random.default_rng(rank)
        shared = own.empty(16, 64)
        for method, round_sum, rows in calls:
            if delays.random() < 0.2:
                time.sleep(delays.random() / 200)
            given = x[:rows] if delays.random() < 0.5 or method == "one_shot" else shared[:rows]
            if given is not x:
                shared[:rows] = x[:rows]
            out, *_ = comm.all_reduce_norm_quantize(
                given, weight, own, residual=x[:rows], round_sum=round_sum, method=method
            )
            assert_same_bytes(out.copy(), expected[round_sum][:rows])
        return True

    sums = [rank_sum_f32([x] * 3, round_sum=round_sum) + x.astype(np.float32) for round_sum in (False, True)]
    expected = [round_to(rmsnorm_f32(h, weight.astype(np.float32)), x.dtype) for h in sums]
    assert all(on_threads(3, work))


@pytest.mark.parametrize("rows", [1025, 1500, 3001])
def test_ranks_tell_each_other_the_sums_of_more_rows_than_they_begin_with(rows: int) -> None:
    shares, weight = shares_of("random", 3, rows, 16, "float16"), make_weight(16, "float16")
    expected = round_to(
        rmsnorm_f32(rank_sum_f32(shares, round_sum=True), weight.astype(np.float32)), np.dtype(np.float16)
    )

    def work(rank: int, exchange: Exchange) -> list[Any]:
        own = workspace(rank, exchange, 3, max_rows=rows, hidden_size=16, one_shot_rows=1)
        calls = (comm.all_reduce_norm_quantize(shares[rank], weight, own, round_sum=True) for _ in range(3))
        return [out.copy() for out, _, _ in calls]

    for found in on_threads(3, work):
        for out in found:
            assert_same_bytes(out, expected)


def test_layer_normalization_of_leading_dimensions_at_any_stride() -> None:
    size = 48
    packed = [make_input("random", 12, 3 * size, "float16", rank).reshape(3, 4, 3 * size) for rank in range(3)]
    shares = [each[..., size : 2 * size] for each in packed]
    gamma, beta = make_weight(size, "float32"), make_weight(size, "float32", 2)

    def work(rank: int, exchange: Exchange) -> comm.Reduced:
        own = workspace(rank, exchange, 3)
        return comm.all_reduce_norm_quantize(shares[rank], gamma, own, norm="layernorm", bias=beta)

    s = rank_sum_f32([share.reshape(12, size) for share in shares])
    expected = round_to(layernorm_f32(s, gamma, beta), shares[0].dtype)
    for out, _, _ in on_threads(3, work):
        assert out.shape == (3, 4, size)
        assert_same_bytes(out.reshape(12, size), expected)


@pytest.mark.parametrize("what", ["rows", "residual"])
def test_ranks_that_disagree_name_each_other(what: str) -> None:
    x, other = np.ones((4, 64), np.float16), 1

    def work(rank: int, exchange: Exchange) -> CommError:
        own = workspace(rank, exchange, 3)
        comm.all_reduce_norm_quantize(x, x[0], own)
        given = x[:3] if what == "rows" and rank == other else x
        residual = x if what == "residual" and rank == other else None
        with pytest.raises(CommError) as error:
            comm.all_reduce_norm_quantize(given, x[0], own, residual=residual)
        with pytest.raises(CommError):  # it takes no calls
            comm.all_reduce_norm_quantize(x, x[0], own)
        own.reset()
        comm.all_reduce_norm_quantize(x, x[0], own)
        return error.value

    for rank, error in enumerate(on_threads(3, work)):
        assert (error.rank, error.call) == (rank, 1)
        if rank == other:
            assert set(error.disagreeing) <= {0, 2}
        else:
            assert error.disagreeing == (other,)
        assert f"ranks {list(error.disagreeing)}" in str(error)


def test_a_rank_without_rows_of_its_own_hears_of_a_disagreement_and_sums_again_after_a_reset() -> None:
    """It waits only for the sum of the other's row, which that one does not send."""
    x = np.ones((1, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> tuple[CommError, Any]:
        own = workspace(rank, exchange, 2, deadline=60.0, output_bytes=1 << 16)
        comm.all_reduce_norm_quantize(x, x[0], own, method="two_shot")
        with pytest.raises(CommError) as error:
            comm.all_reduce_norm_quantize(x, x[0], own, method="two_shot", residual=x if rank else None)
        own.reset()
        return error.value, comm.all_reduce_norm_quantize(x, x[0], own, method="two_shot").out.copy()

    (error, first), (other, second) = on_threads(2, work)
    assert (error.disagreeing, other.disagreeing) == ((1,), (0,))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("methods", [("one_shot", "two_shot"), ("two_shot", "not_fused"), ("not_fused", "one_shot")])
def test_ranks_that_sum_by_other_methods_hear_of_it_within_the_deadline(methods: tuple[str, str]) -> None:
    x = np.ones((4, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> CommError:
        own = workspace(rank, exchange, 2, output_bytes=1 << 16, deadline=0.5)
        with pytest.raises(CommError) as error:
            comm.all_reduce_norm_quantize(x, x[0], own, method=methods[rank])
        own.reset()
        assert comm.all_reduce_norm_quantize(x, x[0], own).out.shape == x.shape
        return error.value

    errors = on_threads(2, work)
    for rank, error in enumerate(errors):
        assert 1 - rank in {*error.late, *error.disagreeing}
    if "one_shot" not in methods:  # both await the same mark
        assert any(error.disagreeing for error in errors)


def test_a_rank_that_does_not_come_is_named_within_the_deadline() -> None:
    x = np.ones((4, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> CommError | None:
        # Else a rank that builds the kernel may be late, too.
        comm.all_reduce_norm_quantize(x, x[0], workspace(rank, exchange, 4))
        own = workspace(rank, exchange, 4, deadline=0.2)
        exchange(b"")
        if rank == 2:
            return None
        with pytest.raises(CommError) as error:
            comm.all_reduce_norm_quantize(x, x[0], own)
        return error.value

    for rank, error in enumerate(on_threads(4, work)):
        if rank != 2:
            assert error is not None
            assert 2 in error.late
            assert error.disagreeing == ()
            assert "within 0.2 s" in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": np.ones((17, 64), np.float16)}, "input: has 17 rows, but the workspace is for 16"),
        ({"input": np.ones((1, 2048), np.float16)}, "input: has 2048 columns, but the workspace is for 1024"),
        ({"input": np.ones((1, 64), np.float32)}, "input: dtype is float32, but the workspace is for float16"),
        ({"method": "ring"}, "method: is 'ring'"),
        ({"method": "two_shot"}, "method: is 'two_shot', but the workspace has no room"),
        ({"method": "not_fused"}, "method: is 'not_fused', but the workspace has no room"),
        ({"method": "not_fused", "round_sum": False}, "round_sum: is False, but method is 'not_fused'"),
        ({"norm": "batchnorm"}, "norm: is 'batchnorm'"),
        ({"norm": "layernorm"}, "norm: is 'layernorm', which takes a weight and a bias, or neither"),
        ({"spec": QuantSpec("e4m3", "tensor", "f32"), "scale": "tensor"}, "scale: is that of the whole tensor"),
    ],
)
def test_errors_say_what_is_allowed(options: dict[str, Any], message: str) -> None:
    def work(rank: int, exchange: Exchange) -> None:
        own = workspace(rank, exchange, 2)
        call = {"input": np.ones((1, 64), np.float16), "weight": np.ones(64, np.float16), "workspace": own, **options}
        with pytest.raises(ValueError, match=message):
            comm.all_reduce_norm_quantize(**call)

    on_threads(2, work)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all_reduce=ring,ranks=2", "all_reduce: is 'ring'"),
        ("all_reduce=one_shot,ranks=9", "ranks: is 9"),
        ("ranks=2", "ranks, rounds_sum: are 2 and False, which need all_reduce"),
        ("all_reduce=one_shot,ranks=2,batched=true", "batched: cannot be combined with all_reduce"),
        ("all_reduce=one_shot,ranks=2,keep_rstd=true", "keep_rstd: cannot be combined with all_reduce"),
        ("all_reduce=one_shot,ranks=2,weights=2", "weights, weight_rows: are more than 1"),
        (
            "all_reduce=sharded,ranks=2",
            "all_reduce: is 'sharded', which leaves a sum with a residual",
        ),
        ("all_reduce=one_shot,ranks=2,quant=e2m1/16/e4m3/linear/tensor", "scale: is that of the whole tensor"),
        ("all_reduce=two_shot,ranks=2,quant=e4m3/column/f32/linear/given", "scale: is that of rows, columns or blocks"),
    ],
)
def test_configurations_that_do_not_go_together(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(f"rmsnorm:hidden_size=64,{text}")


@pytest.mark.parametrize("text", ["all_reduce=sharded", "all_reduce=one_shot,quant=e4m3/tensor/f32"])
def test_without_a_norm_there_are_sums_alone(text: str) -> None:
    with pytest.raises(ValueError, match="without a norm there are only the sums themselves"):
        KernelConfig.parse(f"quantize:hidden_size=64,ranks=2,{text}")


def test_rows_that_no_registers_hold_are_refused() -> None:
    config = KernelConfig.parse("rmsnorm:hidden_size=65536,all_reduce=one_shot,ranks=2")
    with pytest.raises(ValueError, match="input: has rows of 65536, too long for the registers of sm_80"):
        row_schedule(config, Target("sm_80"))


def _rank_of_process(rank: int, exchange: Exchange, victim: int) -> tuple[int, ...]:
    """Call until one of the ranks has been killed; report the errors of the others."""
    own = workspace(rank, exchange, 3, deadline=0.5)
    x = np.full((4, 64), rank, np.float16)
    for call in range(20):
        if call == 10 and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            total = comm.all_reduce_norm_quantize(x, x[0], own, residual=x).residual_out
        except CommError as error:
            return error.late
        assert (total == 3 + rank).all()
    return ()


def test_others_hear_of_a_killed_process_and_start_again_with_another() -> None:
    with Processes(3, _rank_of_process, 2) as processes:
        for rank in range(2):
            assert 2 in processes.result(rank)
        with pytest.raises(RuntimeError, match="rank 2 ended"):
            processes.result(2)
    with Processes(3, _rank_of_process, -1) as processes:
        assert [processes.result(rank) for rank in range(3)] == [()] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 9}, "ranks: is 9"),
        ({"max_rows": 0}, "max_rows: is 0"),
        ({"hidden_size": 0}, "hidden_size: is 0"),
        ({"dtype": "int8"}, "dtype: is 'int8'"),
        ({"deadline": 0}, "deadline: is 0; seconds"),
        ({"device": "cuda"}, "device: is 'cuda'"),
    ],
)
def test_workspaces_of_other_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workspace(0, lambda own: [own, own], **{"ranks": 2, **options})


def test_ranks_make_workspaces_of_the_same_sizes() -> None:
    def work(rank: int, exchange: Exchange) -> None:
        with pytest.raises(ValueError, match=r"ranks \[\d\] make another workspace"):
            workspace(rank, exchange, 2, max_rows=4 + rank)

    on_threads(2, work)
