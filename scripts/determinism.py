"""Compares the bytes of batches and their parts, of targets, of frameworks, and of other libraries' functions.

    python scripts/determinism.py                # a table
    python scripts/determinism.py --markdown     # writes it into docs/determinism.md

Runs on the CPU and on the GPU, if torch finds one. Frameworks and libraries that are not installed are omitted. Fails
if anything differs that must be equal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import determinism_peers
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import jitnorm

PAGE = Path(__file__).parents[1] / "docs" / "determinism.md"
HEAD = "| what | compared with | where | values or bytes | differ |\n| --- | --- | --- | --- | --- |\n"
LONGEST_CHUNK = 255

Array = NDArray[Any]
Call = Callable[[Any, Any], Any]

# Ops that have a result for each row, over any tensor and a weight.
CALLS: dict[str, Call] = {
    "rmsnorm": jitnorm.rmsnorm,
    "add_rmsnorm": lambda x, weight: jitnorm.add_rmsnorm(x, x, weight),
    "layernorm": lambda x, weight: jitnorm.layernorm(x, weight, weight),
    "silu_and_mul": lambda x, _: jitnorm.silu_and_mul(x),
    "rmsnorm_fp4quant": jitnorm.rmsnorm_fp4quant,
    "norm_quantize, MXFP8": lambda x, weight: jitnorm.norm_quantize(x, weight, spec=jitnorm.MXFP8),
    "norm_quantize, FP8_TOKEN": lambda x, weight: jitnorm.norm_quantize(x, weight, spec=jitnorm.FP8_TOKEN),
    "norm_quantize, INT8_GROUP": lambda x, weight: jitnorm.norm_quantize(x, weight, spec=jitnorm.INT8_GROUP),
}


@dataclass(frozen=True)
class Compared:
    """A comparison: the number of values or bytes, how many of them differ, and whether any may."""

    what: str
    by: str
    where: str
    count: int
    differ: int
    has_to_be_equal: bool = True

    def __str__(self) -> str:
        share = f" ({self.differ / self.count:.2g})" if self.differ else ""
        return f"| {self.what} | {self.by} | {self.where} | {self.count} | {self.differ}{share} |"


@dataclass(frozen=True)
class Framework:
    """A way to pass arrays to ops, and to read the bytes of the results."""

    where: str
    give: Callable[[Array], Any]
    take: Callable[[Any], Array]


def _to_torch(array: Array, device: str) -> Any:
    import torch

    if array.dtype.name == "bfloat16":  # torch does not accept these from NumPy
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def _from_torch(tensor: Any) -> Array:
    import torch

    array: Array = tensor.contiguous().view(torch.uint8).cpu().numpy()
    return array


def _of_torch(device: str) -> Framework:
    return Framework(device, lambda array: _to_torch(array, device), _from_torch)


def _bytes(array: Any) -> Array:
    return np.ascontiguousarray(np.asarray(array)).view(np.uint8)


def frameworks() -> dict[str, Framework]:
    """The installed frameworks; NumPy, the reference for the others, comes first."""
    found = {"NumPy": Framework("cpu", lambda array: array, _bytes)}
    if find_spec("torch"):
        found["torch"] = _of_torch("cpu")
        if has_gpu():
            found["torch on the GPU"] = _of_torch("cuda")
    if find_spec("jax"):
        import jax.numpy as jnp

        found["JAX"] = Framework("its default device", jnp.asarray, _bytes)
    if find_spec("cupy") and has_gpu():
        import cupy

        found["CuPy"] = Framework("cuda", cupy.asarray, lambda array: _bytes(cupy.asnumpy(array)))
    return found


def has_gpu() -> bool:
    if not find_spec("torch"):
        return False
    import torch

    return bool(torch.cuda.is_available())


def parts(result: Any) -> tuple[Any, ...]:
    """The tensors of a result."""
    if isinstance(result, jitnorm.QuantizedTensor):
        return (result.data, result.scale)
    return result if isinstance(result, tuple) else (result,)


def bytes_of(framework: Framework, call: Call, x: Array, weight: Array) -> Array:
    """The bytes of a call's result, (rows, bytes)."""
    found = parts(call(framework.give(x), framework.give(weight)))
    return np.concatenate([framework.take(part).reshape(len(x), -1) for part in found], axis=1)


def inputs(rows: int, hidden_size: int, dtype: Any) -> tuple[Array, Array]:
    """Rows of different magnitudes, and a weight in float32."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, hidden_size)) * np.exp(generator.standard_normal((rows, 1)))
    return x.astype(dtype), (generator.random(hidden_size) + 0.5).astype(np.float32)


def chunks(rows: int) -> Iterator[slice]:
    """Split rows into chunks of random lengths up to the longest."""
    generator, start = np.random.default_rng(1), 0
    while start < rows:
        end = start + int(generator.integers(1, LONGEST_CHUNK + 1))
        yield slice(start, end)
        start = end


def batches(rows: int, hidden_size: int) -> Iterator[Compared]:
    """Compare each op over all rows with the op over a few rows at a time."""
    x, weight = inputs(rows, hidden_size, ml_dtypes.bfloat16)
    places = [_of_torch("cuda")] if has_gpu() else []
    for framework in (frameworks()["NumPy"], *places):
        for name, call in CALLS.items():
            whole = bytes_of(framework, call, x, weight)
            apart = [bytes_of(framework, call, x[chunk], weight) for chunk in chunks(rows)]
            differ = int((whole != np.concatenate(apart)).sum())
            by = f"the same in chunks of up to {LONGEST_CHUNK}"
            yield Compared(f"{name}, {rows} x {hidden_size}", by, framework.where, whole.size, differ)


def places(rows: int, hidden_size: int) -> Iterator[Compared]:
    """Compare each op through each framework, on that framework's device, with NumPy."""
    # CuPy has no bfloat16.
    x, weight = inputs(rows, hidden_size, np.float16)
    known = frameworks()
    first = known.pop("NumPy")
    for name, call in CALLS.items():
        expected = bytes_of(first, call, x, weight)
        for other, framework in known.items():
            differ = int((bytes_of(framework, call, x, weight) != expected).sum())
            yield Compared(
                f"{name}, {rows} x {hidden_size}", f"NumPy, by {other}", framework.where, expected.size, differ
            )


def peers(rows: int, hidden_size: int) -> Iterator[Compared]:
    """Compare ops with functions of other libraries, on the CPU."""
    x, weight = inputs(rows, hidden_size, ml_dtypes.bfloat16)
    for library, functions in determinism_peers.PEERS.items():
        if find_spec(library) and find_spec("torch"):
            for name, function in functions.items():
                ours, theirs, has_to_be_equal = function(_to_torch(x, "cpu"), _to_torch(weight, "cpu"))
                yield Compared(*name, "cpu", ours.numel(), int((ours != theirs).sum()), has_to_be_equal)


def table(rows: Iterable[Compared]) -> str:
    return HEAD + "".join(f"{row}\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="write the table into docs/determinism.md")
    write, found = parser.parse_args().markdown, []
    for compared in (batches(4096, 4096), places(256, 4096), peers(256, 4096)):
        for row in compared:
            print(row, flush=True)
            found.append(row)
    if write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
        PAGE.write_text(f"{before}{table(found)}\n{rest.partition(chr(10) * 2)[2]}", encoding="utf-8")
    return int(any(row.differ for row in found if row.has_to_be_equal))


if __name__ == "__main__":
    sys.exit(main())
