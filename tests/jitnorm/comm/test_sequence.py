"""The halves of sums over ranks, on the CPU: the bytes of the reference for the rows that each rank has."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from encoded import BLOCKINGS, assert_encoded, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from inputs import INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import QuantSpec
from ranks import Exchange, Processes

from jitnorm import FP8_TOKEN, comm
from jitnorm.comm import CommError
from jitnorm.comm.threads import on_threads
from jitnorm.reference import layernorm_f32, rank_sum_f32, rmsnorm_f32, round_to

ROUNDINGS: Any = ("once", "hf", "vllm", "output")
SPECS = [spec for spec in BLOCKINGS if not spec.needs_tensor_amax]
ROWS = (4, 5, 16, 1)
SCATTERS = ("one_shot", "two_shot")


def workspace(rank: int, exchange: Exchange, ranks: int, **options: Any) -> comm.Workspace:
    sizes: dict[str, Any] = {"max_rows": 16, "hidden_size": 1024, "dtype": "float16", "output_bytes": 1 << 19}
    return comm.Workspace.from_exchange(rank, ranks, exchange, **{**sizes, **options})


def own_rows(rows: int, rank: int, ranks: int) -> slice:
    """A rank's rows of a sum; the last ranks may have fewer, or none."""
    each = -(-rows // ranks)
    return slice(min(rows, rank * each), min(rows, (rank + 1) * each))


def shares_of(kind: str, ranks: int, rows: int, size: int, dtype: str) -> list[Any]:
    """The input of each rank, with zeros of both signs."""
    shares = [make_input(kind, rows, size, dtype, rank) for rank in range(ranks)]
    for share in shares:
        share[:, ::3] = -0.0
        share[:, 1::7] = 0.0
    return shares


@pytest.mark.parametrize("method", SCATTERS)
@pytest.mark.parametrize(
    ("ranks", "size", "dtype", "rounding", "round_sum", "adds"),
    [
        (2, 17, "float16", "once", True, True),
        (3, 1000, "bfloat16", "hf", False, True),
        (4, 513, "float32", "once", True, False),
        (8, 48, "float16", "vllm", True, True),
    ],
)
def test_each_rank_gets_its_rows_of_the_sum(
    ranks: int, size: int, dtype: str, rounding: Any, round_sum: bool, adds: bool, method: str
) -> None:
    weight, cases = make_weight(size, dtype), []
    for number, kind in enumerate(INPUT_KINDS):
        rows = ROWS[number % len(ROWS)]
        cases.append((shares_of(kind, ranks, rows, size, dtype), make_input("random", rows, size, dtype, 9)))

    def work(rank: int, exchange: Exchange) -> list[comm.Reduced]:
        own, found = workspace(rank, exchange, ranks, dtype=dtype), []
        for shares, residual in cases:
            added = residual[own_rows(len(residual), rank, ranks)] if adds else None
            options: dict[str, Any] = {"residual": added, "rounding": rounding, "round_sum": round_sum}
            options["method"] = method
            found.append(comm.reduce_scatter_norm_quantize(shares[rank], weight, own, **options))
        return found

    for rank, found in enumerate(on_threads(ranks, work)):
        for (shares, residual), (out, total, norm) in zip(cases, found, strict=True):
            s, added = rank_sum_f32(shares, round_sum=round_sum), {"residual": residual if adds else None}
            y = rmsnorm_f32(s, weight.astype(np.float32), **added, rounding=rounding, dtype=shares[0].dtype)
            among = own_rows(len(residual), rank, ranks)
            assert norm is None
            assert_same_bytes(out, round_to(y, shares[0].dtype)[among])
            if adds:
                assert_same_bytes(total, round_to(s + residual.astype(np.float32), residual.dtype)[among])
            else:
                assert total is None


@pytest.mark.parametrize(
    ("ranks", "size", "dtype", "rounding", "adds"),
    [
        (2, 17, "float16", "once", True),
        (3, 1000, "bfloat16", "hf", True),
        (4, 513, "float32", "once", False),
        (8, 48, "bfloat16", "vllm", False),
    ],
)
def test_all_ranks_get_the_norm_of_all_rows(ranks: int, size: int, dtype: str, rounding: Any, adds: bool) -> None:
    """An input of -0 keeps its sign, because it is not summed."""
    weight = make_weight(size, dtype)
    cases = [
        [shares_of(kind, ranks, 1 + number % 2, size, dtype), shares_of("random", ranks, 1 + number % 2, size, dtype)]
        for number, kind in enumerate(INPUT_KINDS)
    ]

    def work(rank: int, exchange: Exchange) -> list[list[Any]]:
        own, found = workspace(rank, exchange, ranks, dtype=dtype), []
        for parts, residuals in cases:
            added = residuals[rank] if adds else None
            made = comm.norm_quantize_all_gather(parts[rank], weight, own, residual=added, rounding=rounding)
            found.append([None if each is None else each.copy() for each in made])
        return found

    for rank, found in enumerate(on_threads(ranks, work)):
        for (parts, residuals), (out, total, norm) in zip(cases, found, strict=True):
            x, added = np.concatenate(parts), np.concatenate(residuals)
            y = rmsnorm_f32(
                x.astype(np.float32), weight.astype(np.float32), residual=added if adds else None, rounding=rounding,
                dtype=x.dtype,
            )  # fmt: skip
            assert norm is None
            assert_same_bytes(out, round_to(y, x.dtype))
            if adds:
                with np.errstate(invalid="ignore"):  # infinity minus itself
                    own = parts[rank].astype(np.float32) + residuals[rank].astype(np.float32)
                assert_same_bytes(total, round_to(own, x.dtype))
            else:
                assert total is None


@pytest.mark.parametrize(("spec", "unit_bias", "method"), in_turn(SPECS[::5], (False, True), SCATTERS), ids=str)
def test_rows_of_a_sum_are_encoded(spec: QuantSpec, unit_bias: bool, method: str) -> None:
    """A rank's rows are encoded as if there were no others, including the padding of scales."""
    dtype, size, rows = dtype_of(spec), hidden_size_of(spec), 5
    shares, weight = shares_of("real", 2, rows, size, dtype), make_weight(size, dtype)
    residual = make_input("random", rows, size, dtype, 9)

    def work(rank: int, exchange: Exchange) -> comm.Reduced:
        own, among = workspace(rank, exchange, 2, dtype=dtype), own_rows(rows, rank, 2)
        options: dict[str, Any] = {"unit_bias": unit_bias, "keep_norm": True, **given_keywords(spec)}
        options["method"] = method
        return comm.reduce_scatter_norm_quantize(shares[rank], weight, own, residual=residual[among], **options)

    h = rank_sum_f32(shares) + residual.astype(np.float32)
    y = rmsnorm_f32(h, weight.astype(np.float32), weight_bias=float(unit_bias))
    for rank, (q, total, norm) in enumerate(on_threads(2, work)):
        among = own_rows(rows, rank, 2)
        assert_encoded(q, y[among], spec, (len(y[among]), size), str(spec))
        assert_same_bytes(norm, round_to(y[among], residual.dtype))
        assert_same_bytes(total, round_to(h[among], residual.dtype))


@pytest.mark.parametrize(("spec", "unit_bias"), in_turn(SPECS[1::5], (False, True)), ids=str)
def test_codes_of_all_rows_are_gathered(spec: QuantSpec, unit_bias: bool) -> None:
    dtype, size, rows = dtype_of(spec), hidden_size_of(spec), 3
    parts, weight = shares_of("real", 2, rows, size, dtype), make_weight(size, dtype)
    residuals = shares_of("random", 2, rows, size, dtype)

    def work(rank: int, exchange: Exchange) -> comm.Reduced:
        own = workspace(rank, exchange, 2, dtype=dtype)
        options: dict[str, Any] = {"unit_bias": unit_bias, "keep_norm": True, **given_keywords(spec)}
        return comm.norm_quantize_all_gather(parts[rank], weight, own, residual=residuals[rank], **options)

    h = np.concatenate(parts).astype(np.float32) + np.concatenate(residuals).astype(np.float32)
    y = rmsnorm_f32(h, weight.astype(np.float32), weight_bias=float(unit_bias))
    for rank, (q, total, norm) in enumerate(on_threads(2, work)):
        among = slice(rank * rows, (rank + 1) * rows)
        assert_encoded(q, y, spec, (2 * rows, size), str(spec))
        assert_same_bytes(norm, round_to(y[among], parts[0].dtype))
        assert_same_bytes(total, round_to(h[among], parts[0].dtype))


def test_a_layer_of_sequence_parallelism_has_the_bits_of_tensor_parallelism() -> None:
    """The rows of a sum are scattered, and gathered after the next norm; all intermediate forms are tested, too."""
    rows, size, ranks = 6, 64, 3
    shares, weight = shares_of("real", ranks, rows, size, "bfloat16"), make_weight(size, "bfloat16")

    def work(rank: int, exchange: Exchange) -> bool:
        own, delays = workspace(rank, exchange, ranks, dtype="bfloat16"), np.random.default_rng(rank)
        among = own_rows(rows, rank, ranks)
        for call in range(12):  # each combination of the options below
            if delays.random() < 0.2:
                time.sleep(delays.random() / 200)
            residual = np.roll(shares[0], call, 0)
            whole = comm.all_reduce_norm_quantize(
                shares[rank], weight, own, spec=FP8_TOKEN, residual=residual, keep_norm=True,
                method=("one_shot", "two_shot")[call % 2], round_sum=call % 3 > 0,
            )  # fmt: skip
            kept = [each.copy() for each in (whole.out.data, whole.out.scale, whole.residual_out, whole.norm)]
            part = comm.reduce_scatter_norm_quantize(
                shares[rank], weight, own, spec=FP8_TOKEN, residual=residual[among], keep_norm=True,
                round_sum=call % 3 > 0, method=SCATTERS[call // 2 % 2],
            )  # fmt: skip
            for got, expected in zip((part.out.data, part.out.scale, *part[1:]), kept, strict=True):
                assert_same_bytes(got, expected[among])
            gathered = comm.norm_quantize_all_gather(part.residual_out, weight, own, spec=FP8_TOKEN)
            total = rmsnorm_f32(kept[2].astype(np.float32), weight.astype(np.float32))
            assert_encoded(gathered.out, total, FP8_TOKEN, (rows, size), "gathered")
        return True

    assert all(on_threads(ranks, work))


@pytest.mark.parametrize("method", SCATTERS)
def test_more_dimensions_and_rows_at_a_stride_in_the_window(method: str) -> None:
    size = 48
    gamma, beta = make_weight(size, "float32"), make_weight(size, "float32", 2)
    shares = [make_input("random", 12, 3 * size, "float16", rank) for rank in range(3)]

    def work(rank: int, exchange: Exchange) -> list[Any]:
        own = workspace(rank, exchange, 3)
        shared = own.empty(12, 3 * size)
        shared[...] = shares[rank]
        middle = shared[:, size : 2 * size]
        options: dict[str, Any] = {"norm": "layernorm", "bias": beta}
        scatter_options = {**options, "method": method}
        found = [comm.reduce_scatter_norm_quantize(x, gamma, own, **scatter_options).out for x in (middle, middle[:3])]
        x = np.ascontiguousarray(shares[rank].reshape(3, 4, 3 * size)[..., size : 2 * size])
        found.append(comm.reduce_scatter_norm_quantize(x, gamma, own, **scatter_options).out)
        return [*found, comm.norm_quantize_all_gather(middle[:4], gamma, own, **options).out.copy()]

    s = rank_sum_f32([share[:, size : 2 * size] for share in shares])
    expected = round_to(layernorm_f32(s, gamma, beta), shares[0].dtype)
    for rank, (rows, single, leading, gathered) in enumerate(on_threads(3, work)):
        assert_same_bytes(rows, expected[4 * rank : 4 * rank + 4])
        assert_same_bytes(single, expected[rank : rank + 1])
        assert leading.shape == (1, 4, size)
        assert_same_bytes(leading[0], expected[4 * rank : 4 * rank + 4])
        assert gathered.shape == (12, size)


def _scatter(x: Any, own: comm.Workspace, **options: Any) -> object:
    return comm.reduce_scatter_norm_quantize(x, x[0], own, **options)


def _read(x: Any, own: comm.Workspace, **options: Any) -> object:
    return _scatter(x, own, method="two_shot", **options)


def _gather(x: Any, own: comm.Workspace, **options: Any) -> object:
    return comm.norm_quantize_all_gather(x, x[0], own, **options)


def _divide(x: Any, own: comm.Workspace, **options: Any) -> object:
    return comm.all_reduce_norm_quantize(x, x[0], own, method="two_shot", **options)


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (_read, lambda x, own: _gather(x, own)),
        (_gather, lambda x, own: _divide(x, own, round_sum=False)),
        (_scatter, lambda x, own: _scatter(x[:3], own)),
        (_scatter, lambda x, own: _scatter(x, own, spec=FP8_TOKEN)),
        (_read, lambda x, own: _divide(x, own)),
        (_read, lambda x, own: _read(x[:3], own)),
        (_read, lambda x, own: _read(own.empty(4, 128)[:, :64], own)),
        (_gather, lambda x, own: _gather(x[:3], own)),
        (_gather, lambda x, own: _gather(x, own, residual=x)),
    ],
)
def test_ranks_that_disagree_name_each_other(usual: Any, other: Any) -> None:
    x, odd = np.ones((4, 64), np.float16), 1

    def work(rank: int, exchange: Exchange) -> CommError:
        own = workspace(rank, exchange, 3)
        usual(x, own)
        with pytest.raises(CommError) as error:
            (other if rank == odd else usual)(x, own)
        own.reset()
        usual(x, own)
        return error.value

    for rank, error in enumerate(on_threads(3, work)):
        assert (error.rank, error.call) == (rank, 1)
        named = set(error.disagreeing)
        assert named <= {0, 2} if rank == odd else named == {odd}, error


@pytest.mark.parametrize("other", [_read, _gather, _divide])
def test_a_rank_that_makes_a_call_of_another_kind_is_named_within_the_deadline(other: Any) -> None:
    """Rows that are sent say nothing to a call that reads them, and the other way round."""
    x = np.ones((4, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> CommError:
        own = workspace(rank, exchange, 2, deadline=0.2)
        with pytest.raises(CommError) as error:
            (other if rank else _scatter)(x, own)
        return error.value

    for rank, error in enumerate(on_threads(2, work)):
        assert error.late == (1 - rank,)


@pytest.mark.parametrize("call", [_scatter, _read, _gather])
def test_a_rank_that_does_not_come_is_named_within_the_deadline(call: Any) -> None:
    x = np.ones((4, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> CommError | None:
        # Else a rank that builds the kernel may be late, too.
        call(x, workspace(rank, exchange, 3))
        own = workspace(rank, exchange, 3, deadline=0.2)
        exchange(b"")
        if rank == 2:
            return None
        with pytest.raises(CommError) as error:
            call(x, own)
        return error.value

    for error in on_threads(3, work)[:2]:
        assert error is not None
        assert 2 in error.late


def _rank_of_process(rank: int, exchange: Exchange) -> list[Any]:
    own = workspace(rank, exchange, 3)
    x = np.full((5, 64), rank, np.float16)
    among = own_rows(5, rank, 3)
    part = comm.reduce_scatter_norm_quantize(x, x[0] + 1, own, spec=FP8_TOKEN, residual=x[among])
    gathered = comm.norm_quantize_all_gather(np.full((2, 64), rank, np.float16), x[0] + 1, own, spec=FP8_TOKEN)
    return [part.residual_out, gathered.out.data.copy(), gathered.out.scale.copy()]


def test_ranks_are_processes() -> None:
    with Processes(3, _rank_of_process) as processes:
        found = [processes.result(rank) for rank in range(3)]
    for rank, (total, codes, scales) in enumerate(found):
        assert (total == 3 + rank).all()
        assert total.shape == ((2, 2, 1)[rank], 64)
        assert_same_bytes(codes, found[0][1])
        assert_same_bytes(scales, found[0][2])


@pytest.mark.parametrize(
    ("call", "shape", "options", "message"),
    [
        (_scatter, (17, 64), {}, "input: has 17 rows, but the workspace is for 16"),
        (_gather, (9, 64), {}, "input: has 18 rows, but the workspace is for 16"),
        (_read, (4, 64), {"output_bytes": None}, "input: is divided by the ranks, but the workspace has no room"),
        (_gather, (4, 64), {"output_bytes": None}, "out: has the rows of all ranks, but the workspace has no room"),
        (_scatter, (3, 2, 64), {}, r"input: shape is \(3, 2, 64\), of which 2 ranks cannot each have a part"),
        (_gather, (2, 2, 64), {}, "input: has 3 dimensions, but those that ranks gather have 2"),
    ],
)
def test_errors_say_what_is_allowed(call: Any, shape: tuple[int, ...], options: dict[str, Any], message: str) -> None:
    def work(rank: int, exchange: Exchange) -> None:
        own = workspace(rank, exchange, 2, **options)
        with pytest.raises(ValueError, match=message):
            call(np.ones(shape, np.float16), own)

    on_threads(2, work)


def test_more_rows_than_slots_are_read() -> None:
    x = np.ones((4, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> Any:
        own = workspace(rank, exchange, 2, one_shot_rows=3)
        with pytest.raises(ValueError, match="method: is 'one_shot', but the input has 4 rows, and one_shot_rows"):
            _scatter(x, own, method="one_shot")
        with pytest.raises(ValueError, match="method: is 'three_shot'; allowed"):
            _scatter(x, own, method="three_shot")
        return _scatter(x, own)

    for found in on_threads(2, work):
        assert_same_bytes(found.out, x[:2])


def test_a_residual_has_the_rows_of_its_rank() -> None:
    x = np.ones((4, 64), np.float16)

    def work(rank: int, exchange: Exchange) -> None:
        own = workspace(rank, exchange, 2)
        with pytest.raises(ValueError, match=r"residual: shape is \(4, 64\), expected \(2, 64\)"):
            _scatter(x, own, residual=x)

    on_threads(2, work)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all_reduce=all_gather,ranks=2,rounds_sum=true", "rounds_sum: is True, but all_reduce is 'all_gather'"),
        ("all_reduce=all_gather,ranks=2,row_dims=2", "row_dims: is 2, but all_reduce is 'all_gather'"),
        ("all_reduce=reduce_scatter,ranks=2,quant=e4m3/column/f32/linear/given", "scale: is that of rows, columns"),
        ("all_reduce=one_shot_scatter,ranks=2,quant=e4m3/row/f32/linear/given", "scale: is that of rows, columns"),
    ],
)
def test_configurations_that_do_not_go_together(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelConfig.parse(f"rmsnorm:hidden_size=64,{text}")
