"""Random calls across ranks, and what each rank must get: computed on the CPU, from the sum that NumPy makes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import jitnorm
from jitnorm.comm.all_reduce import METHODS

SPECS = {
    "none": None,
    "fp8": jitnorm.FP8_TOKEN,
    "fp8_tensor": jitnorm.FP8_TENSOR,
    "fp8_group": jitnorm.FP8_GROUP,
    "int8": jitnorm.INT8_TOKEN,
    "mxfp8": jitnorm.MXFP8.with_layout("128x4"),
    "mxfp4": jitnorm.MXFP4,
    "nvfp4": jitnorm.NVFP4.with_layout("128x4"),
}
DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
MAX_ROWS, MAX_HIDDEN = 96, 7168
_BLOCKS, _ANY = (128, 512, 1024, 2944, 4096, 7168), (1, 7, 129, 513, 1000, 2880)
_ROWS = (1, 1, 2, 3, 7, 8, 16, 33, 64, MAX_ROWS)
_KINDS = ("normal", "wide", "zeros", "special")
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 6e4, -1e-7)


@dataclass(frozen=True)
class Config:
    """Options that a kernel is compiled for, by names of this module."""

    spec: str
    norm: str
    hidden_size: int
    has_residual: bool
    unit_bias: bool
    keep_norm: bool
    method: str
    round_sum: bool


@dataclass(frozen=True)
class Case:
    """A call: all of it follows from these values on every rank."""

    config: Config
    dtype: str
    rows: int
    kind: str
    seed: int

    def inputs(self, ranks: int) -> dict[str, Any]:
        """The tensors by name; of the input, that of each rank."""
        numbers, config = np.random.default_rng(self.seed), self.config
        shape = (self.rows, config.hidden_size)
        weight = numbers.uniform(0.5, 1.5, config.hidden_size).astype(np.float32)
        return {
            "input": [self._values(numbers, shape) for _ in range(ranks)],
            "residual": self._values(numbers, shape) if config.has_residual else None,
            "weight": weight,
            "bias": weight[::-1].copy() if config.norm == "layernorm" else None,
            "scale": np.float32([0.02]) if config.spec == "fp8_tensor" else None,
        }

    def rows_of(self, rank: int, ranks: int) -> slice:
        """Rows whose residual is a rank's where it is sharded."""
        count = -(-self.rows // ranks)
        return slice(rank * count, (rank + 1) * count)

    def _values(self, numbers: np.random.Generator, shape: tuple[int, int]) -> NDArray[Any]:
        values = numbers.standard_normal(shape)
        if self.kind == "wide":
            values = np.ldexp(values, numbers.integers(-20, 14, shape))
        elif self.kind == "zeros":
            values = np.copysign(0, values)
        elif self.kind == "special":
            values = np.where(numbers.random(shape) < 0.02, numbers.choice(_SPECIAL, shape), values)
        return values.astype(DTYPES[self.dtype])


def draw_config(chance: random.Random) -> Config:
    """A random kernel."""
    spec = chance.choice([*SPECS])
    norm = chance.choice(("rmsnorm", "rmsnorm", "layernorm"))
    method = chance.choice(METHODS)
    return Config(
        spec,
        norm,
        chance.choice(_BLOCKS if spec != "none" else _BLOCKS + _ANY),
        method == "sharded" or chance.random() < 0.7,
        norm == "rmsnorm" and chance.random() < 0.3,
        spec != "none" and chance.random() < 0.3,
        method,
        chance.random() < 0.5,
    )


def draw_case(chance: random.Random, config: Config, dtype: str) -> Case:
    """A random call of a kernel."""
    return Case(config, dtype, chance.choice(_ROWS), chance.choice(_KINDS), chance.getrandbits(32))


def expected(case: Case, tensors: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Results that every rank gets, by name."""
    config, dtype = case.config, DTYPES[case.dtype]
    with np.errstate(all="ignore"):
        h = np.zeros((case.rows, config.hidden_size), np.float32)
        for share in tensors["input"]:
            h = h + share.astype(np.float32)
        if config.round_sum:
            h = h.astype(dtype).astype(np.float32) + np.float32(0)
        if config.has_residual:
            h = h + tensors["residual"].astype(np.float32)
        found = {"residual_out": h.astype(dtype)} if config.has_residual else {}
        spec, weight, bias = SPECS[config.spec], tensors["weight"], tensors["bias"]
        if spec is None or config.keep_norm:
            found["out" if spec is None else "norm"] = _norm(config, h, weight, bias).astype(dtype)
    if spec is not None:
        if config.norm == "layernorm":
            q = jitnorm.layernorm_quantize(h, weight, bias, spec=spec, scale=tensors["scale"])
        else:
            q = jitnorm.norm_quantize(h, weight, spec=spec, unit_bias=config.unit_bias, scale=tensors["scale"])
        found |= {"codes": q.data, "scales": q.scale}
    return found


def _norm(config: Config, h: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[Any]:
    if config.norm == "layernorm":
        return jitnorm.layernorm(h, weight, bias)
    return (jitnorm.gemma_rmsnorm if config.unit_bias else jitnorm.rmsnorm)(h, weight)


def call(case: Case, tensors: dict[str, Any], share: Any, workspace: jitnorm.comm.Workspace) -> dict[str, Any]:
    """Make the call on tensors of the workspace's device, `share` being this rank's input; the results by name."""
    config, spec = case.config, SPECS[case.config.spec]
    reduced = jitnorm.comm.all_reduce_norm_quantize(
        share, tensors["weight"], workspace, spec=spec, norm=config.norm, residual=tensors["residual"],
        bias=tensors["bias"], scale=tensors["scale"], unit_bias=config.unit_bias, keep_norm=config.keep_norm,
        method=config.method, round_sum=config.round_sum,
    )  # fmt: skip
    found = {"residual_out": reduced.residual_out, "norm": reduced.norm}
    found |= {"out": reduced.out} if spec is None else {"codes": reduced.out.data, "scales": reduced.out.scale}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def differences(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> list[str]:
    """Differences in words; NaNs are alike."""
    problems = [f"{name} is {'missing' if name in wanted else 'new'}" for name in found.keys() ^ wanted.keys()]
    for name in found.keys() & wanted.keys():
        got, want = np.ascontiguousarray(found[name]), np.ascontiguousarray(wanted[name])
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            problems.append(f"{name} is {got.shape} {got.dtype}, expected {want.shape} {want.dtype}")
            continue
        is_number = got.dtype.kind == "f" or got.dtype == ml_dtypes.bfloat16
        alike = np.isnan(got) & np.isnan(want) if is_number else np.zeros(got.shape, bool)
        bits = f"u{got.dtype.itemsize}"
        wrong = (got.view(bits) != want.view(bits)) & ~alike
        if wrong.any():
            first = tuple(map(int, np.argwhere(wrong)[0]))
            problems.append(f"{name} differs in {wrong.sum()} of {wrong.size} elements, first at {first}")
    return problems
