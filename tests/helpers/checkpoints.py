"""Small checkpoints in Hugging Face's format, and their contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from jitnorm.checkpoint.stored import read_header

# All rows are as long, so that few kernels are compiled.
HIDDEN, INNER, VOCABULARY = 256, 320, 32
SHARDS = tuple(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
QUANTIZED = tuple(
    [f"model.layers.0.self_attn.{name}_proj" for name in "qkvo"]
    + [f"model.layers.0.mlp.experts.1.{name}_proj" for name in ("gate", "up", "down")]
)
KEPT = ("lm_head", "model.embed_tokens", "model.layers.0.mlp.gate")


def weights() -> dict[str, NDArray[Any]]:
    """The tensors of a one-layer model with a router and an expert; up projections have larger values."""
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (HIDDEN, HIDDEN) for name in QUANTIZED[:4]}
    gate, up, down = (f"{name}.weight" for name in QUANTIZED[4:])
    shapes |= {gate: (INNER, HIDDEN), up: (INNER, HIDDEN), down: (INNER, HIDDEN), "model.norm.weight": (HIDDEN,)}
    shapes |= {f"{KEPT[0]}.weight": (VOCABULARY, HIDDEN), f"{KEPT[1]}.weight": (VOCABULARY, HIDDEN)}
    shapes |= {f"{KEPT[2]}.weight": (8, HIDDEN), "model.layers.0.self_attn.q_proj.bias": (HIDDEN,)}
    random = np.random.default_rng(0)
    found = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found[up] *= 3
    return {name: each.astype(ml_dtypes.bfloat16) for name, each in found.items()}


def write_checkpoint(folder: Path, tensors: Mapping[str, NDArray[Any]] | None = None, shards: int = 3) -> Path:
    """Write a checkpoint of that many files, with the parts of fused matrices in different ones."""
    folder.mkdir()
    tensors = weights() if tensors is None else tensors
    files = SHARDS[:shards] if shards > 1 else ("model.safetensors",)
    places = {name: files[position % len(files)] for position, name in enumerate(tensors)}
    for file in files:
        held = {name: each for name, each in tensors.items() if places[name] == file}
        save_file(held, folder / file, metadata={"format": "pt"})
    if shards > 1:
        index = {"metadata": {"total_size": 1, "by": "hand"}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": HIDDEN}))
    (folder / "tokenizer.json").write_text('{"words": []}')
    return folder


# The library has no FP8 for NumPy.
DTYPES: dict[str, Any] = {
    "BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32,
    "U8": np.uint8, "F8_E4M3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


def read_checkpoint(folder: Path) -> dict[str, NDArray[Any]]:
    """All tensors of a checkpoint."""
    return {
        tensor.name: np.frombuffer(file.read_bytes(), np.uint8, tensor.size, tensor.begin)
        .view(DTYPES[tensor.dtype])
        .reshape(tensor.shape)
        for file in sorted(folder.glob("*.safetensors"))
        for tensor in read_header(file)[0]
    }


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
