"""Makes a call, and compares every byte that it can have written with the reference."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from encoded import KINDS
from expected import as_bytes
from frameworks import to_torch, to_torch_cuda, to_tvm
from inputs import ALL_DTYPES, make_input, make_weight
from numpy.typing import NDArray

from fuzz.case import Case, Place
from fuzz.memory import Guarded, guarded
from fuzz.ops import OPS, VECTORS, encoding_of
from fuzz.sanitizer import kept_to
from jitnorm.reference import round_to

Array = NDArray[Any]
_MAKE = {"numpy": np.asarray, "torch": to_torch, "cuda": to_torch_cuda, "tvm_ffi": to_tvm}


class Mismatch(AssertionError):  # noqa: N818 - named as what it is
    """A call gave other bytes than the reference, or wrote where it must not."""


def check(case: Case) -> None:
    """Make a call.

    Raises:
        Mismatch: it gave wrong bytes, or wrote outside of its outputs.
        Exception: whatever the call raises.
    """
    op, choices = OPS[case.config.op], dict(case.config.choices)
    arrays = _arrays(case)
    places = dict(case.places)
    tensors = {name: guarded(array, places.get(name, Place()), case.framework) for name, array in arrays.items()}
    given = {name: tensor.tensor for name, tensor in tensors.items()}
    rows = {
        name: array.reshape(-1, array.shape[-1]) if name not in VECTORS else array for name, array in arrays.items()
    }
    with np.errstate(all="ignore"):
        wanted = op.expected(rows, case.eps, choices)
    make = _MAKE[case.framework]
    with kept_to(tensors.values()):
        q = op.call({**given, "make": make}, case.eps, choices)
    if "encoded" in wanted:
        fields = encoding_of(wanted.pop("encoded"), choices)
        _compare_encoding(case, q, fields)
        if case.gives_outputs:
            # Once more, into tensors between guard bytes, with the original contents of those written in place.
            again = {name: guarded(array, places.get(name, Place()), case.framework) for name, array in arrays.items()}
            outputs = _outputs_like(case, q, fields)
            made = {**again, **outputs}
            with kept_to(made.values()):
                op.call({**{name: each.tensor for name, each in made.items()}, "make": make}, case.eps, choices)
            for name, output in outputs.items():
                shape, dtype = output.placed.view.shape, output.placed.view.dtype
                _require(output.holds(as_bytes(fields[name]).reshape(-1).view(dtype).reshape(shape)), name)
    for name, tensor in tensors.items():
        expected = wanted.get(name)
        if expected is not None and expected.dtype != tensor.placed.view.dtype:
            expected = round_to(expected, tensor.placed.view.dtype)
        _require(tensor.holds(None if expected is None else expected.reshape(tensor.placed.view.shape)), name)


def _require(problem: str, name: str) -> None:
    if problem:
        raise Mismatch(f"{name}: {problem}")


def _arrays(case: Case) -> dict[str, Array]:
    """The values of all tensors; outputs hold a pattern that no op would leave."""
    op, size = OPS[case.config.op], case.config.hidden_size
    weight_dtype = dict(case.config.choices).get("weight", "same")
    arrays = {}
    for name in op.tensors:
        seed = case.seed + zlib.crc32(name.encode())
        if name in VECTORS:
            arrays[name] = make_weight(size, case.config.dtype if weight_dtype == "same" else str(weight_dtype), seed)
        elif name.endswith("out"):
            arrays[name] = np.zeros((*case.leading, size), ALL_DTYPES[case.config.dtype])
        else:
            columns = 2 * size if op.halves and name == "input" else size
            kind = case.kind if name == "input" else "random"
            made = make_input(kind, case.rows, columns, case.config.dtype, seed)
            arrays[name] = made.reshape(*case.leading, columns)
    return arrays


def _compare_encoding(case: Case, q: Any, fields: dict[str, Array]) -> None:
    for name, wanted in fields.items():
        if name == "scale" and KINDS[dict(case.config.choices)["spec"]].has_given_scales:
            continue
        found, expected = as_bytes(getattr(q, name)), as_bytes(wanted)
        if found.tobytes() != expected.tobytes():
            raise Mismatch(f"{name}: {found.shape} and {expected.shape} bytes, or their content, differ")


def _outputs_like(case: Case, q: Any, fields: dict[str, Array]) -> dict[str, Guarded]:
    """Codes and computed scales to write to, with the shapes of the allocated ones."""
    spec = KINDS[dict(case.config.choices)["spec"]]
    found = {"data": q.data}
    if "scale" in fields:
        found["scale"] = q.scale
    place = dict(case.places).get("input", Place())
    where = Place(0, place.offset) if spec.element != "e2m1" else Place()
    return {
        name: guarded(_like(tensor), where if name == "data" else Place(), case.framework)
        for name, tensor in found.items()
    }


def _like(tensor: Any) -> Array:
    """Zeros of the shape and dtype of a tensor."""
    import ml_dtypes

    name = str(tensor.dtype).rpartition(".")[2]
    if name.startswith("float4"):  # two to a byte, which NumPy has no dtype for
        name = "uint8"
    return np.zeros(tuple(tensor.shape), np.dtype(getattr(ml_dtypes, name, None) or name))
