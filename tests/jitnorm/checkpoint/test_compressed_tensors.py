"""compressed-tensors' code decodes the written files. scripts/check_checkpoints installs it and runs this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import QUANTIZED, contents, weights, write_checkpoint

from jitnorm.checkpoint.convert import quantize_checkpoint
from jitnorm.checkpoint.layouts import FORMATS, layout_of

pytest.importorskip("compressed_tensors", reason="needs transformers, 170 MB; run scripts/check_checkpoints")
WORST = {"nvfp4": 0.011, "mxfp4": 0.016, "fp8": 0.001, "fp8-block": 0.001}


@pytest.mark.parametrize("format", FORMATS)
def test_it_decodes_every_weight(tmp_path: Path, format: str) -> None:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file

    for _ in quantize_checkpoint(write_checkpoint(tmp_path / "in"), tmp_path / "out", layout_of(format)):
        pass
    written = json.loads(contents(tmp_path / "out")["config.json"])["quantization_config"]
    config = QuantizationConfig.model_validate(written)
    (scheme,) = config.config_groups.values()
    compressor: Any = BaseCompressor.get_value_from_registry(config.format)
    found = {name: each for file in (tmp_path / "out").glob("*.safetensors") for name, each in load_file(file).items()}
    for module in QUANTIZED:
        own = {name.removeprefix(f"{module}."): each for name, each in found.items() if name.startswith(f"{module}.w")}
        assert set(own) == set(compressor.compression_param_names(scheme))
        values = compressor.decompress(own, scheme)["weight"].float().numpy()
        weight = weights()[f"{module}.weight"].astype(np.float32)
        assert ((values - weight) ** 2).mean() < WORST[format] * (weight**2).mean()
