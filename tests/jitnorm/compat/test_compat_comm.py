"""jitnorm.compat.flashinfer.comm: the fused all-reduce, as FlashInfer's callers and vLLM's pass call it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from unoptimized import unoptimized

import jitnorm
from jitnorm.comm.memory import Exchange
from jitnorm.comm.threads import on_threads
from jitnorm.compat import vllm
from jitnorm.compat.arguments import spec_of
from jitnorm.compat.flashinfer import comm
from jitnorm.compat.flashinfer.comm import AllReduceFusionPattern as Pattern

__all__ = ["unoptimized"]

ROWS, SIZE, RANKS = 3, 256, 2
SHARES = [torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(rank)).half() for rank in range(RANKS)]
RESIDUAL = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(9)).half()
GAMMA = torch.linspace(0.5, 1.5, SIZE).half()
SUM = (SHARES[0].float() + SHARES[1].float()).half().float()
SCALE = torch.tensor([0.25])


@pytest.fixture(autouse=True)
def _plain(unoptimized: None) -> None:
    """Do not optimize kernels here, which changes no bit."""


def expected_norm() -> torch.Tensor:
    norm: torch.Tensor = jitnorm.rmsnorm(SUM + RESIDUAL.float(), GAMMA.float()).half()
    return norm


def workspace_of(rank: int, exchange: Exchange, **options: Any) -> comm.AllReduceFusionWorkspace:
    backend = SimpleNamespace(allgather=lambda own: tuple(exchange(own)))
    return comm.create_allreduce_fusion_workspace(
        "trtllm", RANKS, rank, ROWS, SIZE, torch.float16, comm_backend=backend, **options
    )


def on_ranks(call: Callable[[torch.Tensor, comm.AllReduceFusionWorkspace], Any]) -> list[Any]:
    """Run a call on each rank with its share of the sum, and return the results."""

    def work(rank: int, exchange: Exchange) -> Any:
        workspace = workspace_of(rank, exchange)
        try:
            return call(SHARES[rank].clone(), workspace)
        finally:
            workspace.destroy()

    return on_threads(RANKS, work)


def test_the_norm_and_the_sum_with_the_residual_take_the_places_that_are_given() -> None:
    """vLLM's pass calls it this way: the norm replaces the input, and the sum replaces the residual."""

    def call(x: torch.Tensor, workspace: comm.AllReduceFusionWorkspace) -> Any:
        residual = RESIDUAL.clone()
        made = comm.allreduce_fusion(
            input=x, workspace=workspace, pattern=Pattern.kARResidualRMSNorm, launch_with_pdl=True, output=None,
            residual_out=residual, norm_out=x, quant_out=None, scale_out=None, residual_in=residual, rms_gamma=GAMMA,
            rms_eps=1e-6, scale_factor=None, layout_code=0, use_oneshot=True, fp32_acc=True, weight_bias=0.0,
            trigger_completion_at_end=False,
        )  # fmt: skip
        assert made is x
        return x, residual

    for x, residual in on_ranks(call):
        assert x.equal(expected_norm())
        assert residual.equal((SUM + RESIDUAL.float()).half())


def test_without_outputs_they_are_made_and_the_sum_alone_needs_no_norm() -> None:
    def call(x: torch.Tensor, workspace: comm.AllReduceFusionWorkspace) -> Any:
        pattern = Pattern.kARResidualRMSNorm
        norm = comm.allreduce_fusion(x, workspace, pattern, residual_in=RESIDUAL, rms_gamma=GAMMA, weight_bias=1.0)
        return comm.allreduce_fusion(x, workspace, Pattern.kAllReduce), norm

    for total, norm in on_ranks(call):
        assert total.equal(SUM.half())
        assert norm.equal(jitnorm.gemma_rmsnorm(SUM + RESIDUAL.float(), GAMMA.float()).half())


def test_codes_are_those_of_the_rounded_norm_which_some_patterns_also_give() -> None:
    expected = expected_norm()
    swizzled = jitnorm.quantize(expected, spec=jitnorm.NVFP4.with_layout("128x4"), global_scale=SCALE)
    by_rows = jitnorm.quantize(expected, spec=spec_of("e4m3", "row", scale_floor=1 / (448 * 512)))
    by_groups = vllm.per_token_group_quant_fp8_packed_for_deepgemm(expected, 128)
    by_one = jitnorm.quantize(expected, spec=jitnorm.FP8_TENSOR, scale=SCALE)

    def call(x: torch.Tensor, workspace: comm.AllReduceFusionWorkspace) -> None:
        def check(pattern: str, codes: torch.Tensor, scales: torch.Tensor | None, **options: Any) -> None:
            norm = torch.empty_like(x) if "Out" in pattern else None
            quant_out, scale_out = torch.empty_like(codes), None
            if scales is not None:
                scale_out = torch.empty_strided(scales.shape, scales.stride(), dtype=scales.dtype)
            found = comm.allreduce_fusion(
                x, workspace, getattr(Pattern, f"kARResidualRMSNorm{pattern}"), norm_out=norm, quant_out=quant_out,
                scale_out=scale_out, residual_in=RESIDUAL, rms_gamma=GAMMA, **options,
            )  # fmt: skip
            assert found is (quant_out if norm is None else norm)
            assert norm is None or norm.equal(expected)
            assert quant_out.view(torch.uint8).equal(codes.view(torch.uint8))
            assert scales is None or scale_out.equal(scales)

        check("OutFP4Quant", swizzled.data, swizzled.scale.view(torch.uint8), scale_factor=SCALE)
        check("FP8Quant", by_one.data, None, scale_factor=0.25)
        check("DynamicFP8Quant", by_rows.data, by_rows.scale)
        check("OutPerTokenGroupFP8PackedQuant", *by_groups, block_quant_group_size=128)

    on_ranks(call)


def test_what_fits_a_workspace() -> None:
    def work(rank: int, exchange: Exchange) -> list[bool]:
        workspace = workspace_of(rank, exchange, force_oneshot_support=True)
        calls = (
            (2, 3, 256, torch.float16), (2, 4, 256, torch.float16), (2, 3, 512, torch.float16),
            (2, 3, 256, torch.bfloat16), (4, 3, 256, torch.float16),
        )  # fmt: skip
        return [workspace.is_buffer_size_sufficient(*call) for call in calls]

    assert on_threads(RANKS, work) == [[True, False, False, False, False]] * RANKS


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pattern": Pattern.kMoEReductionARResidualRMSNorm}, "pattern: is 6"),
        ({"pattern": Pattern.kARResidualRMSNorm, "weight_bias": 0.5}, "weight_bias"),
        ({"pattern": Pattern.kARResidualRMSNorm}, "residual_in, rms_gamma"),
    ],
)
def test_what_is_not_here_is_named(options: dict[str, Any], problem: str) -> None:
    workspace: Any = SimpleNamespace(workspace=SimpleNamespace(layout=SimpleNamespace(rows=8, output_bytes=0)))
    with pytest.raises(ValueError, match=problem):
        comm.allreduce_fusion(SHARES[0], workspace, **options)
    with pytest.raises(ValueError, match="max_token_num"):
        comm.create_allreduce_fusion_workspace()
