"""A quantized checkpoint contains the codes of its weights, with the names and shapes that engines load."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import HIDDEN, INNER, KEPT, QUANTIZED, contents, read_checkpoint, weights, write_checkpoint
from numpy.typing import NDArray

from jitnorm import QuantizedTensor, quantize
from jitnorm.checkpoint import pipeline
from jitnorm.checkpoint.convert import quantize_checkpoint
from jitnorm.checkpoint.encode import encode_scale
from jitnorm.checkpoint.layouts import FORMATS, LAYOUTS, layout_of
from jitnorm.reference import quantize_fp4

ALL = [(format, library) for format in FORMATS for library in LAYOUTS if (format, library) != ("mxfp4", "modelopt")]
WORST = {"nvfp4": 0.011, "mxfp4": 0.016, "fp8": 0.001, "fp8-block": 0.001}  # mean square errors, of those of the values


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make weights span several blocks of work."""
    monkeypatch.setattr(pipeline, "BLOCK_BYTES", 100 * HIDDEN * 2)


def convert(source: Path, out: Path, format: str, library: str = "compressed-tensors", **options: Any) -> None:
    for _ in quantize_checkpoint(source, out, layout_of(format, library), **options):
        pass


def global_scale_of(found: dict[str, NDArray[Any]], module: str) -> NDArray[np.float32] | None:
    """The encode scale of a module, from either library's tensor."""
    if f"{module}.weight_scale_2" in found:
        return (1 / found[f"{module}.weight_scale_2"]).reshape(1)
    return found.get(f"{module}.weight_global_scale")


def decoded(found: dict[str, NDArray[Any]], module: str, format: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    given = global_scale_of(found, module)
    spec = FORMATS[format].spec.with_global_scale("none" if given is None else "given")
    codes = found.get(f"{module}.weight_packed", found.get(f"{module}.weight"))
    scale = found[f"{module}.weight_scale"]
    scale = scale.reshape(-1) if format == "fp8" else scale.reshape(scale.shape[0], -1)
    values: NDArray[np.float32] = QuantizedTensor(codes, scale, given, None, None, spec, shape).dequantize()
    return values


@pytest.mark.parametrize(("format", "library"), ALL)
def test_weights_decode_to_what_they_were(tmp_path: Path, format: str, library: str) -> None:
    source = write_checkpoint(tmp_path / "in")
    convert(source, tmp_path / "out", format, library)
    found, given = read_checkpoint(tmp_path / "out"), weights()
    for module in QUANTIZED:
        weight = given.pop(f"{module}.weight").astype(np.float32)
        error = ((decoded(found, module, format, weight.shape) - weight) ** 2).mean() / (weight**2).mean()
        assert error < WORST[format], module
    # Everything else is as it was.
    assert {name: found[name].tobytes() for name in given} == {name: each.tobytes() for name, each in given.items()}


@pytest.mark.parametrize("format", FORMATS)
def test_the_bytes_are_those_of_a_whole_weight(tmp_path: Path, format: str) -> None:
    convert(write_checkpoint(tmp_path / "in"), tmp_path / "out", format)
    found = read_checkpoint(tmp_path / "out")
    for module in QUANTIZED:
        q = quantize(
            weights()[f"{module}.weight"], spec=FORMATS[format].spec, global_scale=global_scale_of(found, module)
        )
        codes = found.get(f"{module}.weight_packed", found.get(f"{module}.weight"))
        assert codes is not None
        assert codes.tobytes() == q.data.tobytes()
        assert found[f"{module}.weight_scale"].tobytes() == q.scale.tobytes()


def test_codes_of_nvfp4_are_the_references_and_fused_weights_share_a_global_scale(tmp_path: Path) -> None:
    convert(write_checkpoint(tmp_path / "in"), tmp_path / "out", "nvfp4")
    found = read_checkpoint(tmp_path / "out")
    for group in (QUANTIZED[:3], QUANTIZED[3:4], QUANTIZED[4:6], QUANTIZED[6:]):
        values = {module: weights()[f"{module}.weight"].astype(np.float32) for module in group}
        scale = np.float32(2688) / max(np.abs(each).max() for each in values.values())
        for module, each in values.items():
            assert found[f"{module}.weight_global_scale"] == scale
            codes, scales = quantize_fp4(each, block_size=16, scale_format="e4m3", global_scale=float(scale))
            assert found[f"{module}.weight_packed"].tobytes() == codes.tobytes()
            assert found[f"{module}.weight_scale"].tobytes() == scales.tobytes()


@pytest.mark.parametrize(("format", "library"), ALL)
def test_names_shapes_and_configuration_are_those_of_the_library(tmp_path: Path, format: str, library: str) -> None:
    convert(write_checkpoint(tmp_path / "in", shards=1), tmp_path / "out", format, library)
    module, rows, columns = QUANTIZED[6], INNER, HIDDEN
    found = {
        name.rpartition(".")[2]: (each.dtype.name, each.shape)
        for name, each in read_checkpoint(tmp_path / "out").items()
        if name.startswith(f"{module}.")
    }
    packed, byte = ("uint8", (rows, columns // 2)), "float8_e4m3fn"
    assert found == {
        ("nvfp4", "compressed-tensors"): {
            "weight_packed": packed, "weight_scale": (byte, (rows, columns // 16)),
            "weight_global_scale": ("float32", (1,)),
        },
        ("nvfp4", "modelopt"): {
            "weight": packed, "weight_scale": (byte, (rows, columns // 16)), "weight_scale_2": ("float32", ()),
        },
        ("mxfp4", "compressed-tensors"): {"weight_packed": packed, "weight_scale": ("uint8", (rows, columns // 32))},
        ("fp8", "compressed-tensors"): {"weight": (byte, (rows, columns)), "weight_scale": ("float32", (rows, 1))},
        ("fp8", "modelopt"): {"weight": (byte, (rows, columns)), "weight_scale": ("float32", (rows,))},
        ("fp8-block", "compressed-tensors"): {
            "weight": (byte, (rows, columns)), "weight_scale": ("float32", (3, 2)),
        },
        ("fp8-block", "modelopt"): {"weight": (byte, (rows, columns)), "weight_scale": ("float32", (3, 1, 2, 1))},
    }[format, library]  # fmt: skip
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["hidden_size"] == HIDDEN
    written = config["quantization_config"]
    assert (written["quant_method"], written["ignore"]) == (library, sorted(KEPT))
    if library == "modelopt":
        beside = json.loads((tmp_path / "out" / "hf_quant_config.json").read_text())["quantization"]
        assert (beside["quant_algo"], beside["exclude_modules"]) == (written["quant_algo"], written["ignore"])


def test_the_index_names_every_tensor_and_other_files_are_copied(tmp_path: Path) -> None:
    convert(write_checkpoint(tmp_path / "in"), tmp_path / "out", "nvfp4")
    out, found = tmp_path / "out", read_checkpoint(tmp_path / "out")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(found)
    size = sum(prod(each.shape) * each.dtype.itemsize for each in found.values())
    assert index["metadata"] == {"by": "hand", "total_size": size}
    assert (out / "tokenizer.json").read_bytes() == (tmp_path / "in" / "tokenizer.json").read_bytes()
    assert sorted(contents(out)) == sorted(contents(tmp_path / "in"))


@pytest.mark.parametrize(("dtype", "formats"), [("float16", ["nvfp4"]), ("float32", ["fp8", "fp8-block"])])
def test_weights_of_other_dtypes_and_odd_shapes(tmp_path: Path, dtype: str, formats: list[str]) -> None:
    """Rows are not whole numbers of blocks of either kind, and one weight is zero."""
    tensors = {"a.weight": np.linspace(-1, 1, 301 * 144).reshape(301, 144).astype(dtype)}
    tensors["zero.weight"] = np.zeros((1, 144), dtype)
    source = write_checkpoint(tmp_path / "in", tensors, shards=1)
    for format in formats:
        convert(source, tmp_path / format, format, threads=3)
        found = read_checkpoint(tmp_path / format)
        values = decoded(found, "a", format, (301, 144))
        assert np.abs(values - tensors["a.weight"].astype(np.float32)).max() < 0.2
        assert not decoded(found, "zero", format, (1, 144)).any()


def test_a_global_scale_is_finite() -> None:
    assert encode_scale(0.0) == 1.0
    assert encode_scale(1e-45) == np.finfo(np.float32).max
    assert encode_scale(np.finfo(np.float32).max) > 0
