"""Sums over ranks on GPUs: the bytes of the reference, with ranks as threads of one process and as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoded import BLOCKINGS, assert_encoded, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.quant_spec import QuantSpec
from ranks import Exchange, Processes

from jitnorm import comm
from jitnorm.comm.threads import on_threads
from jitnorm.reference import rank_sum_f32, rmsnorm_f32, round_to

pytestmark = pytest.mark.gpu

SPECS = [spec for spec in BLOCKINGS if not spec.needs_tensor_amax]
DEVICES = torch.cuda.device_count()
two_gpus = pytest.mark.skipif(DEVICES < 2, reason="needs two GPUs")
ROWS = (1, 16, 5, 64, 2, 33, 40)
# And whether the sum is rounded.
METHODS = (("one_shot", False), ("two_shot", True), ("two_shot", False), ("sharded", True), ("not_fused", True))


def shares_of(kind: str, ranks: int, rows: int, size: int, dtype: str) -> list[Any]:
    """The input of each rank, with zeros of both signs."""
    shares = [make_input(kind, rows, size, dtype, rank) for rank in range(ranks)]
    for share in shares:
        share[:, ::3] = -0.0
    return shares


def check_calls(own: comm.Workspace, device: int, size: int, dtype: str, calls: int) -> None:
    """Check that calls with changing numbers of rows, and then replays of a graph, return the reference's bytes."""
    weight = make_weight(size, dtype)
    on_device = to_torch(weight).to(device)
    for number in range(calls):
        rows, kind = ROWS[number % len(ROWS)], INPUT_KINDS[number % len(INPUT_KINDS)]
        shares, residual = shares_of(kind, own.ranks, rows, size, dtype), make_input("random", rows, size, dtype, 9)
        x, r = (to_torch(each).to(device) for each in (shares[own.rank], residual))
        method, round_sum = METHODS[number % len(METHODS)]
        out, total, _ = comm.all_reduce_norm_quantize(x, on_device, own, residual=r, round_sum=round_sum, method=method)
        torch.cuda.current_stream().synchronize()
        own.check()
        h = rank_sum_f32(shares, round_sum=round_sum) + residual.astype(np.float32)
        each = -(-rows // own.ranks)
        among = slice(own.rank * each, (own.rank + 1) * each) if method == "sharded" else slice(rows)
        assert_same_bytes(total[among].cpu(), round_to(h, residual.dtype)[among], f"{kind}, {rows}, {method}")
        expected = round_to(rmsnorm_f32(h, weight.astype(np.float32)), residual.dtype)
        assert_same_bytes(out.cpu(), expected, f"{kind}, {rows}, {method}")


def check_graph(own: comm.Workspace, device: int, size: int) -> None:
    """Check that a graph of calls replays to the same bytes every time."""
    weight = torch.ones(size, dtype=torch.float16, device=device)
    shares = shares_of("random", own.ranks, 8, size, "float16")
    x = to_torch(shares[own.rank]).to(device)
    options: list[dict[str, Any]] = [{"method": "two_shot", "round_sum": True}, {"round_sum": True}]
    for each in options:
        comm.all_reduce_norm_quantize(x, weight, own, **each)
    torch.cuda.current_stream().synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
        found = [comm.all_reduce_norm_quantize(x, weight, own, **options[i % 2]).out for i in range(5)]
    expected = round_to(
        rmsnorm_f32(rank_sum_f32(shares, round_sum=True), np.ones(size, np.float32)), np.dtype(np.float16)
    )
    for _ in range(20):
        graph.replay()
    torch.cuda.current_stream().synchronize()
    own.check()
    for out in found:
        assert_same_bytes(out.cpu(), expected)


@pytest.mark.parametrize(
    ("ranks", "size", "dtype"), [(2, 7168, "bfloat16"), (2, 1000, "float16"), (2, 4096, "float32")]
)
def test_threads_of_one_process(ranks: int, size: int, dtype: str) -> None:
    """On two GPUs or one, where the few blocks of both kernels run side by side."""

    def work(rank: int, exchange: Exchange) -> None:
        device = rank % DEVICES
        torch.cuda.set_device(device)
        sizes: dict[str, Any] = {"max_rows": 64, "hidden_size": size, "dtype": dtype, "device": device}
        sizes |= {"one_shot_rows": 64, "output_bytes": 1 << 24}
        own = comm.Workspace.from_exchange(rank, ranks, exchange, deadline=10.0, **sizes)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            check_calls(own, device, size, dtype, calls=5 * len(METHODS))
        exchange(b"")
        own.close()

    on_threads(ranks, work)


@pytest.mark.parametrize(
    ("spec", "unit_bias", "method"), in_turn(SPECS, (False, True), ("one_shot", "one_shot", "two_shot")), ids=str
)
def test_it_is_encoded(spec: QuantSpec, unit_bias: bool, method: str) -> None:
    dtype, size = dtype_of(spec), hidden_size_of(spec)
    shares, weight = shares_of("real", 2, 5, size, dtype), make_weight(size, dtype)
    residual = make_input("random", 5, size, dtype, 9)
    h = rank_sum_f32(shares) + residual.astype(np.float32)
    y = rmsnorm_f32(h, weight.astype(np.float32), weight_bias=float(unit_bias))

    def work(rank: int, exchange: Exchange) -> None:
        device = rank % DEVICES
        torch.cuda.set_device(device)
        sizes: dict[str, Any] = {"max_rows": 8, "hidden_size": size, "dtype": dtype, "device": device}
        own = comm.Workspace.from_exchange(rank, 2, exchange, output_bytes=1 << 20, **sizes)
        x, r, w = (to_torch(each).to(device) for each in (shares[rank], residual, weight))
        keywords = given_keywords(spec, lambda array: to_torch(array).to(device))
        with torch.cuda.stream(torch.cuda.Stream(device)):
            q, total, norm = comm.all_reduce_norm_quantize(
                x, w, own, residual=r, unit_bias=unit_bias, keep_norm=True, method=method, **keywords
            )
            torch.cuda.current_stream().synchronize()
        own.check()
        assert_encoded(q.to("cpu"), y, spec, (5, size), str(spec))
        assert_same_bytes(norm.cpu(), round_to(y, residual.dtype))
        assert_same_bytes(total.cpu(), round_to(h, residual.dtype))
        exchange(b"")
        own.close()

    on_threads(2, work)


def _ipc_rank(rank: int, exchange: Exchange, ranks: int) -> None:
    torch.cuda.set_device(rank)
    own = comm.Workspace.from_exchange(
        rank, ranks, exchange, max_rows=64, hidden_size=4096, dtype="float16", device=rank, one_shot_rows=64,
        output_bytes=1 << 21,
    )  # fmt: skip
    with torch.cuda.stream(torch.cuda.Stream(rank)):
        check_calls(own, rank, 4096, "float16", calls=5 * len(METHODS))
        check_graph(own, rank, 4096)
        exchange(b"")
    own.close()


def _torch_rank(rank: int, exchange: Exchange, ranks: int, folder: str) -> None:
    from datetime import timedelta

    from torch import distributed

    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    own = comm.Workspace.from_torch(
        distributed.group.WORLD, max_rows=64, hidden_size=7168, dtype=torch.bfloat16, one_shot_rows=64,
        output_bytes=1 << 22,
    )  # fmt: skip
    with torch.cuda.stream(torch.cuda.Stream(rank)):
        check_calls(own, rank, 7168, "bfloat16", calls=5 * len(METHODS))
    own.reset()
    with torch.cuda.stream(torch.cuda.Stream(rank)):
        check_calls(own, rank, 7168, "bfloat16", calls=2)
    exchange(b"")
    own.close()
    distributed.destroy_process_group()


def _late_rank(rank: int, exchange: Exchange, ranks: int) -> tuple[int, ...]:
    torch.cuda.set_device(rank)
    own = comm.Workspace.from_exchange(
        rank, ranks, exchange, max_rows=4, hidden_size=64, dtype="float16", device=rank, deadline=1.0
    )
    x = torch.ones(4, 64, dtype=torch.float16, device=rank)
    if rank == 0:
        for _ in range(3):  # those behind the first do not wait again
            comm.all_reduce_norm_quantize(x, x[0], own)
        torch.cuda.synchronize()
        with pytest.raises(comm.CommError) as error:
            own.check()
    exchange(b"")
    own.reset()
    comm.all_reduce_norm_quantize(x, x[0], own)
    torch.cuda.synchronize()
    own.check()
    exchange(b"")
    own.close()
    return error.value.late if rank == 0 else ()


@two_gpus
def test_processes_that_share_memory_by_ipc() -> None:
    ranks = min(DEVICES, 8)
    with Processes(ranks, _ipc_rank, ranks) as processes:
        for rank in range(ranks):
            processes.result(rank)


@two_gpus
def test_processes_of_a_torch_group(tmp_path: Path) -> None:
    ranks = min(DEVICES, 8)
    with Processes(ranks, _torch_rank, ranks, str(tmp_path)) as processes:
        for rank in range(ranks):
            processes.result(rank)


@two_gpus
def test_a_rank_that_does_not_come_is_named_within_the_deadline() -> None:
    with Processes(2, _late_rank, 2) as processes:
        assert [processes.result(rank) for rank in range(2)] == [(1,), ()]
