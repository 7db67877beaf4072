"""Legal schedules drawn at random, with the configurations that they are for, and lengths drawn for the rules."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.numerics import CHUNK_SIZE, GROUP_CHUNKS, ceil_div, round_up
from jitnorm.kernels.registers import groups_of
from jitnorm.kernels.row_schedule import WARP_LANES, RowSchedule
from jitnorm.kernels.schedule import why_unfit
from jitnorm.kernels.target import Target

# One for each way to combine, normalize, finish and encode rows.
OPS = (
    "rmsnorm:", "rmsnorm:residual=true,", "rmsnorm:weight=none,", "rmsnorm:weight=float32,", "rmsnorm:input=float32,",
    "rmsnorm:quant=e4m3/tensor/f32,", "rmsnorm:quant=int8/row/f32,", "rmsnorm:quant=e4m3/128/f32,",
    "rmsnorm:residual=true,quant=e4m3/32/ue8m0,", "rmsnorm:quant=e2m1/16/e4m3,", "rmsnorm:quant=e2m1/32/ue8m0,",
    "rmsnorm:quant=e2m1/16/e4m3/linear/row,", "rmsnorm:residual=true,quant=e2m1/16/e4m3/128x4/given,",
    "rmsnorm:quant=e4m3/96/f32,", "rmsnorm:weights=2,", "rmsnorm:residual=true,weights=3,", "rmsnorm:pair=true,",
    "rmsnorm:pair=true,second_size=64,", "rmsnorm:batched=true,", "rmsnorm:gate=norm,", "rmsnorm:gate=input,",
    "rmsnorm:gate=norm,quant=e2m1/16/e4m3,", "rmsnorm:residual=true,sandwich=true,",
    "rmsnorm:activation=silu,activates_norm=true,", "rmsnorm:keep_norm=true,quant=e4m3/row/f32,",
    "layernorm:weight=float32,", "layernorm:weight=float32,quant=e4m3/tensor/f32,", "layernorm:keep_statistics=true,",
    "layernorm:weight=float32,quant=e4m3/32/ue8m0,", "layernorm:weight=float32,quant=int8/48/f32,",
    "layernorm:weight=none,bias=false,", "layernorm:residual=true,branch_gate=true,gate_bias=true,",
    "layernorm:weight=none,bias=false,modulated=true,", "quantize:quant=e2m1/16/e4m3/128x4/given,",
    "quantize:quant=e4m3/32/ue8m0,", "quantize:quant=e4m3/48/f32,", "quantize:quant=e4m3/row/f32,",
    "quantize:weight=none,quant=none,gate_columns=-1,", "quantize:quant=e4m3/128/f32,gate_columns=-1,",
    "quantize:quant=e2m1/16/e4m3,gate_columns=-1,", "quantize:quant=e4m3/row/f32,gate_columns=-1,",
    "quantize:quant=e4m3/128/f32,activation=relu2,", "quantize:experts=3,quant=e2m1/16/e4m3,",
)  # fmt: skip
_SIZES = (384, 512, 768, 1024, 1152, 1536, 1552, 2048, 2304, 3072, 4112)
_OPTIONS = (
    "prefetches_weight", "stores_sum_early", "keeps_unpacked", "takes_fast_path", "favours_latency", "signals_late",
    "splits_chunks", "copies_parameters", "activates_early",
)  # fmt: skip


def drawn_config(op: str, numbers: Random, target: Target) -> KernelConfig:
    """A configuration of an op that names a legal schedule."""
    while True:
        size, pdl = numbers.choice(_SIZES), numbers.choice(("false", "true"))
        text = f"{op}hidden_size={size},pdl={pdl}".replace("gate_columns=-1", f"gate_columns={size}")
        try:
            config = KernelConfig.parse(text)
        except ValueError:  # the length is no multiple of the op's blocks
            continue
        for _ in range(100):
            schedule = _drawn(config, numbers)
            if not why_unfit(config, target, schedule):
                return replace(config, schedule=str(schedule))


def config_by_rules(op: str, numbers: Random) -> KernelConfig:
    """A configuration of an op at any length of up to four groups, whose schedule the rules choose."""
    while True:
        size, many_rows = CHUNK_SIZE * numbers.randint(1, 4 * GROUP_CHUNKS), numbers.choice(("false", "true"))
        try:
            return KernelConfig.parse(f"{op}hidden_size={size},many_rows={many_rows}")
        except ValueError:  # the length is no multiple of the op's blocks
            continue


def _drawn(config: KernelConfig, numbers: Random) -> RowSchedule:
    """A division of a row with random options, which may not fit."""
    blocks, lanes, chunks = numbers.choice((1, 1, 2, 4)), WARP_LANES, numbers.choice((1, 2, 3, 4, 5, 7))
    warps = round_up(ceil_div(groups_of(config), chunks), blocks)
    chunks = ceil_div(groups_of(config), warps)
    if numbers.random() < 0.25:
        lanes, warps, blocks = numbers.choice((1, 4, 8, 16, 24, 72)), 1, 1
        chunks = ceil_div(ceil_div(config.encoded_size, CHUNK_SIZE), lanes)
    ahead = numbers.random() < 0.15
    options = {option: numbers.random() < 0.3 for option in _OPTIONS}
    return RowSchedule(
        warps, chunks, **options, loads_ahead=ahead,
        rows_at_once=numbers.choice((1, 1, 2, 3)), rows_per_block=numbers.choice((1, 1, 2, 3, 4, 8)),
        blocks_per_row=blocks, resident_blocks=numbers.choice((0, 1, 4)), lanes_per_row=lanes,
    )  # fmt: skip
