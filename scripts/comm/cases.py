"""Random calls across ranks, and the results that each rank must get: computed on the CPU from NumPy's sum."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from jitnorm.kernels.all_reduce_rules import MAX_RANKS, SCATTERED
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
FORMS = (*METHODS, *SCATTERED, "all_gather")
"""Methods of the whole sum, and its halves."""
MAX_ROWS, MAX_HIDDEN = 96, 7168
_BLOCKS, _ANY = (128, 512, 1024, 2944, 4096, 7168), (1, 7, 129, 513, 1000, 2880)
_ROWS = (1, 1, 2, 3, 7, 8, 16, 33, 64, MAX_ROWS)
_KINDS = ("normal", "wide", "zeros", "special")
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 6e4, -1e-7)


@dataclass(frozen=True)
class Config:
    """The options that a kernel is compiled for, by the names of this module."""

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
    """A call, which follows entirely from these values, on every rank.

    Attributes:
        rows: of the input of each rank.
    """

    config: Config
    dtype: str
    rows: int
    kind: str
    seed: int

    def all_rows(self, ranks: int) -> int:
        """The number of rows that all ranks together normalize."""
        return self.rows * (ranks if self.config.method == "all_gather" else 1)

    def inputs(self, ranks: int) -> dict[str, Any]:
        """The tensors by name; for the input, one per rank."""
        numbers, config = np.random.default_rng(self.seed), self.config
        shape = (self.rows, config.hidden_size)
        weight = numbers.uniform(0.5, 1.5, config.hidden_size).astype(np.float32)
        return {
            "input": [self._values(numbers, shape) for _ in range(ranks)],
            "residual": self._values(numbers, (self.all_rows(ranks), shape[1])) if config.has_residual else None,
            "weight": weight,
            "bias": weight[::-1].copy() if config.norm == "layernorm" else None,
            "scale": np.float32([0.02]) if config.spec == "fp8_tensor" else None,
        }

    def rows_of(self, rank: int, ranks: int) -> slice:
        """The rows that belong to a rank, where ranks divide all of them."""
        count = -(-self.all_rows(ranks) // ranks)
        return slice(rank * count, (rank + 1) * count)

    def tensors_of(self, tensors: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
        """The tensors that a rank passes, out of those of all ranks."""
        own = {**tensors, "input": tensors["input"][rank]}
        if self.config.has_residual and self.config.method in (*SCATTERED, "all_gather"):
            own["residual"] = tensors["residual"][self.rows_of(rank, ranks)]
        return own

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
    method = chance.choice(FORMS)
    return Config(
        spec,
        norm,
        chance.choice(_BLOCKS if spec != "none" else _BLOCKS + _ANY),
        method == "sharded" or chance.random() < 0.7,
        norm == "rmsnorm" and chance.random() < 0.3,
        spec != "none" and chance.random() < 0.3,
        method,
        method == "not_fused" or chance.random() < 0.5,
    )


def draw_case(chance: random.Random, config: Config, dtype: str) -> Case:
    """A random call of a kernel."""
    rows = chance.choice(_ROWS)
    if config.method == "all_gather":
        rows = -(-rows // MAX_RANKS)  # of each
    return Case(config, dtype, rows, chance.choice(_KINDS), chance.getrandbits(32))


def expected(case: Case, tensors: dict[str, Any], rank: int, ranks: int) -> dict[str, NDArray[Any]]:
    """The results that a rank gets, by name; for a sharded residual, all rows."""
    config, dtype = case.config, DTYPES[case.dtype]
    own = case.rows_of(rank, ranks) if config.method == "all_gather" else slice(None)
    with np.errstate(all="ignore"):
        h = _combined(case, tensors)
        if config.method in SCATTERED:
            h = h[case.rows_of(rank, ranks)]
        found = {"residual_out": h.astype(dtype)[own]} if config.has_residual else {}
        spec, weight, bias = SPECS[config.spec], tensors["weight"], tensors["bias"]
        if spec is None or config.keep_norm:
            norm = _norm(config, h, weight, bias).astype(dtype)
            found |= {"out": norm} if spec is None else {"norm": norm[own]}
    if spec is not None:
        if config.norm == "layernorm":
            q = jitnorm.layernorm_quantize(h, weight, bias, spec=spec, scale=tensors["scale"])
        else:
            q = jitnorm.norm_quantize(h, weight, spec=spec, unit_bias=config.unit_bias, scale=tensors["scale"])
        found |= {"codes": q.data, "scales": q.scale}
    return found


def _combined(case: Case, tensors: dict[str, Any]) -> NDArray[np.float32]:
    """All rows that are normalized."""
    shares = [share.astype(np.float32) for share in tensors["input"]]
    if case.config.method == "all_gather":
        h = np.concatenate(shares)
    else:
        h = sum(shares, np.zeros_like(shares[0]))
        if case.config.round_sum:
            h = h.astype(DTYPES[case.dtype]).astype(np.float32) + np.float32(0)
    return h + tensors["residual"].astype(np.float32) if case.config.has_residual else h


def _norm(config: Config, h: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[Any]:
    if config.norm == "layernorm":
        return jitnorm.layernorm(h, weight, bias)
    return (jitnorm.gemma_rmsnorm if config.unit_bias else jitnorm.rmsnorm)(h, weight)


def call(case: Case, tensors: dict[str, Any], workspace: jitnorm.comm.Workspace) -> dict[str, Any]:
    """Make the call on this rank's tensors, on the workspace's device; the results by name."""
    config, spec = case.config, SPECS[case.config.spec]
    options: dict[str, Any] = {
        "spec": spec, "norm": config.norm, "residual": tensors["residual"], "bias": tensors["bias"],
        "scale": tensors["scale"], "unit_bias": config.unit_bias, "keep_norm": config.keep_norm,
    }  # fmt: skip
    given = tensors["input"], tensors["weight"], workspace
    if config.method == "all_gather":
        reduced = jitnorm.comm.norm_quantize_all_gather(*given, **options)
    elif config.method in SCATTERED:
        options |= {"method": "one_shot" if config.method == "one_shot_scatter" else "two_shot"}
        reduced = jitnorm.comm.reduce_scatter_norm_quantize(*given, round_sum=config.round_sum, **options)
    else:
        options |= {"round_sum": config.round_sum, "method": config.method}
        reduced = jitnorm.comm.all_reduce_norm_quantize(*given, **options)
    found = {"residual_out": reduced.residual_out, "norm": reduced.norm}
    found |= {"out": reduced.out} if spec is None else {"codes": reduced.out.data, "scales": reduced.out.scale}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def differences(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> list[str]:
    """The differences in words; all NaNs count as equal."""
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
