"""The fused all-reduce of `flashinfer.comm`, over `jitnorm.comm`: what vLLM's pass that fuses all-reduces calls.

`backend`, `launch_with_pdl`, `trigger_completion_at_end`, `use_oneshot` and `fp32_acc` are hints: sums are always in
float32, and rounded to the input's dtype before the residual is added. Results are copied to the given outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from jitnorm.comm import Workspace, all_reduce_norm_quantize
from jitnorm.compat.arguments import as_hint, as_scale, spec_of
from jitnorm.compat.groups import spec_of_eps, write_groups
from jitnorm.kernels.quant_spec import FP8_TENSOR, QuantSpec
from jitnorm.quantized import QuantizedTensor

# The lower bound of scales of rows.
_ROW_FLOOR = 1 / (448 * 512)
_GROUP_EPS = 448e-10


class AllReduceFusionPattern:
    """The steps after the sum over ranks in `allreduce_fusion`."""

    kAllReduce = 0  # noqa: N815
    kARResidualRMSNorm = 1  # noqa: N815
    kARResidualRMSNormFP8Quant = 2  # noqa: N815
    kARResidualRMSNormFP4Quant = 3  # noqa: N815
    kARResidualRMSNormOutFP8Quant = 4  # noqa: N815
    kARResidualRMSNormOutFP4Quant = 5  # noqa: N815
    kMoEReductionARResidualRMSNorm = 6  # noqa: N815
    kMoEFinalizeARResidualRMSNorm = 7  # noqa: N815
    kARResidualRMSNormPerTokenGroupFP8PackedQuant = 8  # noqa: N815
    kARResidualRMSNormOutPerTokenGroupFP8PackedQuant = 9  # noqa: N815
    kARResidualRMSNormDynamicFP8Quant = 10  # noqa: N815
    kARResidualRMSNormOutDynamicFP8Quant = 11  # noqa: N815


class QuantizationSFLayout:
    """The layout of NVFP4 scales."""

    SWIZZLED_128x4 = 0
    SWIZZLED_8x4 = 1
    LINEAR = 2


_P = AllReduceFusionPattern
_FP8 = (_P.kARResidualRMSNormFP8Quant, _P.kARResidualRMSNormOutFP8Quant)
_FP4 = (_P.kARResidualRMSNormFP4Quant, _P.kARResidualRMSNormOutFP4Quant)
_GROUPS = (_P.kARResidualRMSNormPerTokenGroupFP8PackedQuant, _P.kARResidualRMSNormOutPerTokenGroupFP8PackedQuant)
_ROWS = (_P.kARResidualRMSNormDynamicFP8Quant, _P.kARResidualRMSNormOutDynamicFP8Quant)
_PATTERNS = (_P.kAllReduce, _P.kARResidualRMSNorm, *_FP8, *_FP4, *_GROUPS, *_ROWS)
_LAYOUTS = {
    QuantizationSFLayout.SWIZZLED_128x4: "128x4",
    QuantizationSFLayout.SWIZZLED_8x4: "8x4",
    QuantizationSFLayout.LINEAR: "linear",
}


class AllReduceFusionWorkspace:
    """A `jitnorm.comm.Workspace` under FlashInfer's names.

    Attributes:
        world_size: how many ranks there are.
        rank: the index of this rank.
        backend: always ``trtllm``.
        workspace: jitnorm's workspace.
    """

    backend = "trtllm"

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.world_size, self.rank = workspace.ranks, workspace.rank

    def is_buffer_size_sufficient(
        self, tp_size: int, num_tokens: int, hidden_dim: int, dtype: torch.dtype, use_oneshot: bool | None = None
    ) -> bool:
        """Whether such calls fit; unlike in FlashInfer, rows and columns are limited separately."""
        layout = self.workspace.layout
        fits = num_tokens <= layout.max_rows and hidden_dim <= layout.hidden_size
        return fits and tp_size == layout.ranks and str(dtype).removeprefix("torch.") == layout.dtype

    def destroy(self) -> None:
        """Release the memory."""
        self.workspace.close()


def create_allreduce_fusion_workspace(
    backend: str = "auto",
    world_size: int | None = None,
    rank: int | None = None,
    max_token_num: int | None = None,
    hidden_dim: int | None = None,
    dtype: torch.dtype | None = None,
    gpus_per_node: int | None = None,
    comm_backend: Any = None,
    force_oneshot_support: bool = False,
    group: Any = None,
) -> AllReduceFusionWorkspace:
    """Create the workspace for all ranks of `group`, or those that `comm_backend.allgather` reaches.

    Without CUDA, the ranks are processes on the CPU.

    Raises:
        ValueError: a size is missing or not allowed.
    """
    if max_token_num is None or hidden_dim is None or dtype is None:
        raise ValueError("max_token_num, hidden_dim, dtype: pass all three")
    sizes: dict[str, Any] = {"max_rows": max_token_num, "hidden_size": hidden_dim, "dtype": dtype}
    if force_oneshot_support:
        sizes["one_shot_rows"] = max_token_num
    has_gpu = torch.cuda.is_available()
    if has_gpu and (group is not None or comm_backend is None):
        group = torch.distributed.group.WORLD if group is None else group
        return AllReduceFusionWorkspace(Workspace.from_torch(group, **sizes))
    if comm_backend is None:
        world_size, rank = torch.distributed.get_world_size(group), torch.distributed.get_rank(group)
    if world_size is None or rank is None:
        raise ValueError("world_size, rank: pass both beside a comm_backend")
    exchange = _all_gather(group) if comm_backend is None else lambda own: list(comm_backend.allgather(own))
    device = torch.cuda.current_device() if has_gpu else "cpu"
    return AllReduceFusionWorkspace(Workspace.from_exchange(rank, world_size, exchange, device=device, **sizes))


def _all_gather(group: Any) -> Callable[[bytes], list[bytes]]:
    def exchange(own: bytes) -> list[bytes]:
        gathered: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(gathered, own, group)
        return gathered

    return exchange


def allreduce_fusion(
    input: torch.Tensor,
    workspace: AllReduceFusionWorkspace,
    pattern: int,
    launch_with_pdl: bool = False,
    trigger_completion_at_end: bool = True,
    output: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
    norm_out: torch.Tensor | None = None,
    quant_out: torch.Tensor | None = None,
    scale_out: torch.Tensor | None = None,
    residual_in: torch.Tensor | None = None,
    rms_gamma: torch.Tensor | None = None,
    rms_eps: float = 1e-6,
    scale_factor: torch.Tensor | float | None = None,
    layout_code: int | None = None,
    use_oneshot: bool | None = None,
    fp32_acc: bool = False,
    moe_reduction_device_num_experts: int | None = None,
    moe_reduction_scale_input: torch.Tensor | None = None,
    moe_reduction_active_experts_token_input: torch.Tensor | None = None,
    moe_reduction_token_input: torch.Tensor | None = None,
    expanded_idx_to_permuted_idx: torch.Tensor | None = None,
    expert_scale_factor: torch.Tensor | None = None,
    shared_expert_output: torch.Tensor | None = None,
    block_quant_group_size: int | None = None,
    weight_bias: float = 0.0,
) -> torch.Tensor:
    """The sum over ranks; except for `kAllReduce`, also the residual, RMSNorm and codes, as the pattern says.

    Codes are those of the norm rounded to the input's dtype. Other outputs are computed if they are given; those for
    experts are not supported.

    Returns:
        `norm_out` if it is given, else the codes, else the norm or, for `kAllReduce`, the sum.

    Raises:
        ValueError: a pattern that is not supported, or an argument that it needs is missing.
    """
    if pattern not in _PATTERNS:
        raise ValueError(f"pattern: is {pattern}; here are {', '.join(map(str, _PATTERNS))}")
    if weight_bias not in (0.0, 1.0):
        raise ValueError(f"weight_bias: is {weight_bias}; 0 or 1 is allowed")
    reduce = partial(
        all_reduce_norm_quantize, input, rms_gamma, workspace.workspace, eps=rms_eps, unit_bias=weight_bias == 1.0,
        round_sum=True, method=_method(use_oneshot, input, workspace.workspace), enable_pdl=as_hint(launch_with_pdl),
    )  # fmt: skip
    if pattern == _P.kAllReduce:
        return _written(reduce(residual=torch.zeros_like(input)).residual_out, output)
    if residual_in is None or rms_gamma is None:
        raise ValueError("residual_in, rms_gamma: are needed for this pattern")
    reduce = partial(reduce, residual=residual_in)
    if pattern == _P.kARResidualRMSNorm:
        reduced = reduce()
        _written(reduced.residual_out, residual_out)
        return _written(reduced.out, norm_out)

    def encode(spec: QuantSpec, out: torch.Tensor | None, out_scale: torch.Tensor | None) -> QuantizedTensor:
        given = _given(spec, scale_factor, input)
        reduced = reduce(spec=spec, keep_norm=norm_out is not None, rounding="output", **given)
        _written(reduced.residual_out, residual_out)
        _written(reduced.norm, norm_out)
        q: QuantizedTensor = reduced.out
        _written(q.data, out)
        _written(q.scale, out_scale)
        return q

    if pattern in _GROUPS:
        if quant_out is None or scale_out is None or block_quant_group_size is None:
            raise ValueError("quant_out, scale_out, block_quant_group_size: are needed for this pattern")
        spec = spec_of_eps("e4m3", block_quant_group_size, _GROUP_EPS, is_ue8m0=True)
        write_groups(encode, spec, quant_out, scale_out)
        return quant_out if norm_out is None else norm_out
    q = encode(_spec(pattern, layout_code), quant_out, None if pattern in _FP8 else scale_out)
    if norm_out is not None:
        return norm_out
    return q.data if quant_out is None else quant_out


def _method(use_oneshot: bool | None, input: torch.Tensor, workspace: Workspace) -> str:
    """The requested method, if the workspace supports it."""
    if use_oneshot and len(input) <= workspace.layout.rows:
        return "one_shot"
    return "two_shot" if use_oneshot is False and workspace.layout.output_bytes else "auto"


def _spec(pattern: int, layout_code: int | None) -> QuantSpec:
    if pattern in _FP8:
        return FP8_TENSOR
    if pattern in _ROWS:
        return spec_of("e4m3", "row", scale_floor=_ROW_FLOOR)
    layout = _LAYOUTS.get(QuantizationSFLayout.SWIZZLED_128x4 if layout_code is None else layout_code)
    if layout is None:
        raise ValueError(f"layout_code: is {layout_code}; here are {', '.join(map(str, _LAYOUTS))}")
    return spec_of("e2m1", 16, "e4m3", layout)


def _given(spec: QuantSpec, scale_factor: torch.Tensor | float | None, input: torch.Tensor) -> dict[str, Any]:
    """The scale given for a format: a divisor for FP8, a factor for NVFP4."""
    if spec.element == "e4m3" and spec.block_size != "tensor":
        return {}
    if scale_factor is None:
        raise ValueError("scale_factor: is needed for this pattern")
    return {"scale" if spec.block_size == "tensor" else "global_scale": as_scale(scale_factor, input)}


def _written(made: torch.Tensor | None, to: torch.Tensor | None) -> Any:
    """Copy a result, byte by byte, to the output that the caller gave; without one, return the result itself."""
    if made is None or to is None:
        return made
    flat, source = to.view(torch.uint8).view(-1), made.contiguous().view(torch.uint8).view(-1)
    if flat.numel() < source.numel():
        raise ValueError(f"output: has {flat.numel()} bytes, expected {source.numel()}")
    flat[: source.numel()].copy_(source)
    return to
