"""Quantized tensors are compared, moved, decoded, printed, pickled and stored, in any framework."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frameworks import CPU_FRAMEWORKS
from inputs import make_input
from python_process import run_python

import jitnorm
from jitnorm import MXFP8, NVFP4, QuantizedTensor, QuantSpec, quantize

FRAMEWORKS = {name: make for name, make in CPU_FRAMEWORKS.items() if name != "tvm_ffi"}
SPECS = [NVFP4.with_layout("linear+128x4"), MXFP8, jitnorm.FP8_TOKEN, jitnorm.FP8_BLOCK, jitnorm.INT8_TOKEN]


def quantized(spec: QuantSpec = NVFP4, make: Any = lambda array: array, **options: Any) -> QuantizedTensor:
    return quantize(make(make_input("random", 6, 256, "float16")), spec=spec, **options)


def test_equality_is_that_of_bytes_in_any_framework() -> None:
    each = [quantized(make=make) for make in FRAMEWORKS.values()]
    assert all(q == each[0] for q in each)


def test_bytes_that_no_host_has_are_an_error_by_name() -> None:
    q = quantized(make=torch.from_numpy)
    with pytest.raises(TypeError, match=r"^data: is on meta"):
        assert q.to("meta") == q
    assert q == q.to("cpu")


@pytest.mark.parametrize(
    "other",
    [
        lambda: quantize(make_input("random", 6, 256, "float16", seed=1), spec=NVFP4),
        lambda: quantize(make_input("random", 5, 256, "float16"), spec=NVFP4),
        lambda: quantized(NVFP4.with_layout("128x4")),
        lambda: quantized(global_scale="tensor"),
        lambda: quantized(MXFP8),
        lambda: None,
    ],
    ids=["values", "rows", "layout", "global scale", "format", "another type"],
)
def test_what_differs_is_not_equal(other: Callable[[], object]) -> None:
    assert quantized() != other()


def test_one_changed_byte_makes_it_unequal() -> None:
    q, changed = quantized(), quantized()
    changed.scale.view(np.uint8)[-1, -1] ^= 1
    assert q != changed


def test_a_framework_that_copies_nothing_out_says_so() -> None:
    q = quantized(make=CPU_FRAMEWORKS["tvm_ffi"])
    with pytest.raises(TypeError, match=r"tvm_ffi.* does not copy tensors to bytes"):
        assert q == q
    with pytest.raises(TypeError, match=r"device: tvm_ffi.* cannot move arrays"):
        q.to("cpu")


def test_it_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(quantized())


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_copies_and_pickles_are_equal(framework: str, spec: QuantSpec) -> None:
    q = quantized(spec, FRAMEWORKS[framework])
    for again in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert again == q
        assert type(again.data) is type(q.data)
        assert again.data.dtype == q.data.dtype


def test_torch_loads_weights_alone_also_in_a_new_process(tmp_path: Path) -> None:
    q, file = quantized(make=torch.from_numpy, global_scale="tensor"), tmp_path / "q.pt"
    torch.save({"weight": q}, file)
    assert torch.load(file, weights_only=True)["weight"] == q
    program = f"import jitnorm.torch, torch; print(torch.load({str(file)!r}, weights_only=True)['weight'])"
    assert run_python(program, cwd=tmp_path) == f"{q}\n"


def test_a_move_to_the_same_device_changes_nothing() -> None:
    for make in FRAMEWORKS.values():
        q = quantized(make=make)
        device = "cpu" if not hasattr(q.data, "devices") else next(iter(q.data.devices()))
        assert q.to(device) == q


def test_a_move_takes_all_tensors() -> None:
    moved = quantized(make=torch.from_numpy, global_scale="tensor").to("meta")
    assert {tensor.device.type for tensor in (moved.data, moved.scale, moved.tensor_scale, moved.amax)} == {"meta"}


def test_what_it_prints_fits_a_line() -> None:
    assert str(quantized(MXFP8, torch.from_numpy)) == (
        "QuantizedTensor(e4m3/32/ue8m0/linear/none, shape=(6, 256), data=float8_e4m3fn (6, 256), scale=uint8 (6, 8))"
    )
    assert "batched=True" in str(quantize(np.ones((2, 3, 64), np.float16), spec=NVFP4, batched=True))
    assert "axis=0" in str(jitnorm.quantize_weight(np.ones((64, 32), np.float16), spec=NVFP4))


def test_it_decodes_itself() -> None:
    q, out = quantized(), np.empty((6, 256), np.float16)
    assert q.dequantize(out=out) is out
    np.testing.assert_array_equal(q.dequantize(dtype="float32"), jitnorm.dequantize(q, dtype="float32"))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_named_tensors_give_it_back(spec: QuantSpec) -> None:
    values = {"a.weight": quantized(spec), "b": quantized(spec, global_scale=None), "bias": np.zeros(3)}
    tensors, metadata = jitnorm.to_named_tensors(values)
    assert all(isinstance(tensor, np.ndarray) for tensor in tensors.values())
    back = jitnorm.from_named_tensors(tensors, {**metadata, "format": "pt"})
    assert back.keys() == values.keys()
    assert back["a.weight"] == values["a.weight"]
    assert back["bias"] is values["bias"]


def test_safetensors_keep_them(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="not installed: pip install safetensors")
    stored = pytest.importorskip("safetensors.torch")
    x = torch.from_numpy(make_input("random", 64, 256, "float16"))
    values = {
        "both layouts": quantize(x, spec=SPECS[0], global_scale="tensor"),
        "batched": quantize(x.reshape(2, 32, 256), spec=NVFP4.with_layout("128x4"), batched=True),
        "weight": jitnorm.quantize_weight(x, spec=NVFP4),
        "blocks of 128x128": quantize(x, spec=jitnorm.FP8_BLOCK),
        "mxfp8": quantize(x, spec=MXFP8),
    }
    tensors, metadata = jitnorm.to_named_tensors(values)
    stored.save_file(tensors, tmp_path / "q.safetensors", metadata=metadata)
    with safetensors.safe_open(tmp_path / "q.safetensors", "pt") as file:
        read = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        assert jitnorm.from_named_tensors(read, file.metadata()) == values


def test_files_without_quantized_tensors_stay_as_they_are() -> None:
    assert jitnorm.from_named_tensors({"bias": 1}, None) == {"bias": 1}


def test_bad_named_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"values: two of them are named 'w\.data'; rename 'w'"):
        jitnorm.to_named_tensors({"w.data": np.zeros(1), "w": quantized()})
    tensors, metadata = jitnorm.to_named_tensors({"w": quantized()})
    del tensors["w.scale"]
    with pytest.raises(ValueError, match=r"tensors: w\.scale is missing"):
        jitnorm.from_named_tensors(tensors, metadata)
    for text in ("[]", "{", '{"w": 3}', '{"w": ["e2m1", "x", false]}'):
        with pytest.raises(ValueError, match="metadata: 'jitnorm' is "):
            jitnorm.from_named_tensors(tensors, {"jitnorm": text})


def test_torch_saves_and_loads_in_memory() -> None:
    file = io.BytesIO()
    torch.save(quantized(MXFP8, torch.from_numpy), file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == quantized(MXFP8)
