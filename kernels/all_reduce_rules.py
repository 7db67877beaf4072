"""Rules on the fields of a KernelConfig for inputs that are summed over the ranks of a tensor-parallel group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .quant_spec import require_one_of

if TYPE_CHECKING:
    from .config import KernelConfig

ALL_REDUCE = ("all_reduce", "ranks", "rounds_sum")
METHODS = ("one_shot", "two_shot", "sharded", "one_shot_scatter", "reduce_scatter", "all_gather")
SCATTERED = ("one_shot_scatter", "reduce_scatter")
"""Methods with which each rank has only its own rows of the sum, and keeps what it makes of them."""
MAX_RANKS = 8


def check_all_reduce(config: KernelConfig) -> None:
    """Raise ValueError if one of `ALL_REDUCE` has a value that is not allowed, or not allowed with the others."""
    require_one_of("all_reduce", config.all_reduce, ("", *METHODS))
    if not config.all_reduce:
        if config.ranks or config.rounds_sum:
            raise ValueError(f"ranks, rounds_sum: are {config.ranks!r} and {config.rounds_sum}, which need all_reduce")
        return
    require_one_of("ranks", config.ranks, tuple(range(2, MAX_RANKS + 1)))
    others = (
        "pair", "batched", "gate_columns", "streams", "activation", "gate", "sandwich", "backward", "amax_parts",
        "branch_gate", "branch_scale", "modulated", "keep_rstd", "keep_statistics",
    )  # fmt: skip
    if wrong := [name for name in others if getattr(config, name)]:
        raise ValueError(f"{wrong[0]}: cannot be combined with all_reduce; sum over ranks first, then call the op")
    if config.op == "quantize" and (config.quant is not None or config.all_reduce not in ("one_shot", "two_shot")):
        raise ValueError(
            f"all_reduce: is {config.all_reduce!r} of quantize with quant {config.quant}, but without a norm there are "
            "only the sums themselves; use 'one_shot' or 'two_shot' and None"
        )
    if config.weights > 1 or config.weight_rows > 1:
        raise ValueError("weights, weight_rows: are more than 1, which cannot be combined with all_reduce")
    if config.quant is not None and config.quant.needs_tensor_amax:
        raise ValueError(
            "scale: is that of the whole tensor, which takes a launch before the one that sums over ranks; give it, or "
            "use scales of rows or blocks"
        )
    if config.quant is not None and config.quant.has_given_scales and (config.divides_rows or config.scatters):
        raise ValueError("scale: is that of rows, columns or blocks, which needs all_reduce='one_shot'")
    if config.all_reduce == "all_gather" and config.rounds_sum:
        raise ValueError("rounds_sum: is True, but all_reduce is 'all_gather', which sums nothing; pass False")
    if config.all_reduce == "all_gather" and config.row_dims > 1:
        raise ValueError(
            f"row_dims: is {config.row_dims}, but all_reduce is 'all_gather', which takes a matrix; pass 1"
        )
    if config.all_reduce == "sharded" and not config.residual:
        raise ValueError(
            "all_reduce: is 'sharded', which leaves a sum with a residual, but there is none; use 'two_shot'"
        )
