"""The halves of sums over ranks on GPUs: the bytes of the reference, with ranks as threads of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from encoded import BLOCKINGS, assert_encoded, dtype_of, given_keywords, hidden_size_of
from expected import assert_same_bytes
from frameworks import to_torch
from inputs import INPUT_KINDS, in_turn, make_input, make_weight
from jitnorm.kernels.quant_spec import QuantSpec
from ranks import Exchange

from jitnorm import comm
from jitnorm.comm.threads import on_threads
from jitnorm.reference import rank_sum_f32, rmsnorm_f32, round_to

pytestmark = pytest.mark.gpu

SPECS = [spec for spec in BLOCKINGS if not spec.needs_tensor_amax]
DEVICES = torch.cuda.device_count()
ROWS = (16, 5, 64, 1, 33)


def own_rows(rows: int, rank: int, ranks: int) -> slice:
    """A rank's rows of a sum; the last ranks may have fewer, or none."""
    each = -(-rows // ranks)
    return slice(min(rows, rank * each), min(rows, (rank + 1) * each))


def on_devices(ranks: int, size: int, dtype: str, work: Any) -> None:
    """Run work(workspace, put) on each rank, on a stream of its own; put() brings an array to the rank's device."""

    def run(rank: int, exchange: Exchange) -> None:
        device = rank % DEVICES
        torch.cuda.set_device(device)
        sizes: dict[str, Any] = {"max_rows": 128, "hidden_size": size, "dtype": dtype, "device": device}
        own = comm.Workspace.from_exchange(rank, ranks, exchange, deadline=10.0, output_bytes=1 << 24, **sizes)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            work(own, lambda array: to_torch(np.ascontiguousarray(array)).to(device))
        exchange(b"")
        own.close()

    on_threads(ranks, run)


@pytest.mark.parametrize(("size", "dtype"), [(7168, "bfloat16"), (1000, "float16"), (4096, "float32")])
def test_rows_are_scattered_and_gathered(size: int, dtype: str) -> None:
    weight, ranks = make_weight(size, dtype), 2

    def work(own: comm.Workspace, put: Any) -> None:
        on_device = put(weight)
        for number in range(10):
            rows, kind = ROWS[number % len(ROWS)], INPUT_KINDS[number % len(INPUT_KINDS)]
            shares = [make_input(kind, rows, size, dtype, rank) for rank in range(ranks)]
            residual = make_input("random", rows, size, dtype, 9)
            h = rank_sum_f32(shares) + residual.astype(np.float32)
            expected = round_to(rmsnorm_f32(h, weight.astype(np.float32)), residual.dtype)
            gathered = rmsnorm_f32(np.concatenate(shares).astype(np.float32), weight.astype(np.float32))
            among = own_rows(rows, own.rank, ranks)
            x, r = put(shares[own.rank]), put(residual[among])
            method = ("one_shot", "two_shot")[number % 2]
            out, total, _ = comm.reduce_scatter_norm_quantize(x, on_device, own, residual=r, method=method)
            of_all = comm.norm_quantize_all_gather(x, on_device, own).out
            torch.cuda.current_stream().synchronize()
            own.check()
            assert_same_bytes(out.cpu(), expected[among], f"{kind}, {rows}")
            assert_same_bytes(total.cpu(), round_to(h, residual.dtype)[among], f"{kind}, {rows}")
            assert_same_bytes(of_all.cpu(), round_to(gathered, residual.dtype), f"{kind}, {rows}")

    on_devices(ranks, size, dtype, work)


@pytest.mark.parametrize("method", ["one_shot", "two_shot"])
@pytest.mark.parametrize(("spec", "unit_bias"), in_turn(SPECS, (False, True)), ids=str)
def test_they_are_encoded(spec: QuantSpec, unit_bias: bool, method: str) -> None:
    dtype, size, rows = dtype_of(spec), hidden_size_of(spec), 5
    shares = [make_input("real", rows, size, dtype, rank) for rank in range(2)]
    weight, residual = make_weight(size, dtype), make_input("random", rows, size, dtype, 9)
    h = rank_sum_f32(shares) + residual.astype(np.float32)
    x = np.concatenate(shares).astype(np.float32) + np.concatenate([residual, residual]).astype(np.float32)
    scattered, gathered = (
        rmsnorm_f32(each, weight.astype(np.float32), weight_bias=float(unit_bias)) for each in (h, x)
    )

    def work(own: comm.Workspace, put: Any) -> None:
        w, share, among = put(weight), put(shares[own.rank]), own_rows(rows, own.rank, 2)
        options: dict[str, Any] = {"unit_bias": unit_bias, "keep_norm": True, **given_keywords(spec, put)}
        q, total, norm = comm.reduce_scatter_norm_quantize(
            share, w, own, residual=put(residual[among]), method=method, **options
        )
        codes, kept, own_norm = comm.norm_quantize_all_gather(share, w, own, residual=put(residual), **options)
        torch.cuda.current_stream().synchronize()
        own.check()
        part = slice(own.rank * rows, (own.rank + 1) * rows)
        assert_encoded(q.to("cpu"), scattered[among], spec, (len(scattered[among]), size), str(spec))
        assert_same_bytes(norm.cpu(), round_to(scattered[among], residual.dtype))
        assert_same_bytes(total.cpu(), round_to(h[among], residual.dtype))
        assert_encoded(codes.to("cpu"), gathered, spec, (2 * rows, size), str(spec))
        assert_same_bytes(own_norm.cpu(), round_to(gathered[part], residual.dtype))
        assert_same_bytes(kept.cpu(), round_to(x[part], residual.dtype))

    on_devices(2, size, dtype, work)
