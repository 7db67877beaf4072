"""The formats that checkpoints are quantized to, and how inference engines expect their tensors and configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jitnorm.checkpoint.stored import StoredTensor
from jitnorm.kernels.quant_spec import FP8_BLOCK, FP8_TOKEN, MXFP4, NVFP4, QuantSpec
from jitnorm.kernels.spelling import did_you_mean

COMPRESSED_TENSORS, MODELOPT = "compressed-tensors", "modelopt"
LAYOUTS = (COMPRESSED_TENSORS, MODELOPT)
_LONGEST_ROW = 262144


@dataclass(frozen=True)
class Format:
    """A format of weights.

    Attributes:
        name: as users write it.
        spec: how weights are encoded.
        codes: the dtype of the codes, by safetensors' name.
        scales: the dtype of the scales.
        stored_as: compressed-tensors' name for files of it.
        weights: compressed-tensors' description of the weights.
        activations: the same for inputs that are encoded as the model runs; None if they are not.
        algorithm: ModelOpt's name for the format; empty if there is none.
    """

    name: str
    spec: QuantSpec
    codes: str
    scales: str
    stored_as: str
    weights: dict[str, Any]
    activations: dict[str, Any] | None
    algorithm: str


def _described(bits: int, strategy: str, *, dynamic: bool = False, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": "float", "strategy": strategy, "symmetric": True, "dynamic": dynamic, **more}


# NVFP4 for inputs would need a global scale for each layer, calibrated by running the model on samples; so inputs stay
# unquantized in both FP4 formats. MXFP4 scales are rounded as in compressed-tensors, which loses least. Row scales are
# exact down to the smallest normal float32.
FORMATS = {
    each.name: each
    for each in (
        Format(
            "nvfp4", NVFP4, "U8", "F8_E4M3", "nvfp4-pack-quantized",
            _described(4, "tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn"), None, "W4A16_NVFP4",
        ),
        Format(
            "mxfp4", replace(MXFP4, scale_rounding="even"), "U8", "U8", "mxfp4-pack-quantized",
            _described(4, "group", group_size=32, scale_dtype="torch.uint8"), None, "",
        ),
        Format(
            "fp8", FP8_TOKEN.with_scale_floor(2.0**-126), "F8_E4M3", "F32", "float-quantized",
            _described(8, "channel"), _described(8, "token", dynamic=True), "FP8_PER_CHANNEL_PER_TOKEN",
        ),
        Format(
            "fp8-block", FP8_BLOCK, "F8_E4M3", "F32", "float-quantized",
            _described(8, "block", block_structure=[128, 128]),
            _described(8, "group", dynamic=True, group_size=128), "FP8_PB_WO",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """A format in the layout of one of the libraries that engines read.

    Args:
        format: the format.
        convention: the library whose names and shapes are used: ``compressed-tensors`` or ``modelopt``.

    Raises:
        ValueError: the convention has no such format.
    """

    format: Format
    convention: str = COMPRESSED_TENSORS

    def __post_init__(self) -> None:
        if self.convention == MODELOPT and not self.format.algorithm:
            having = ", ".join(name for name, each in FORMATS.items() if each.algorithm)
            raise ValueError(
                f"layout: modelopt has no {self.format.name}; use {COMPRESSED_TENSORS}, or one of {having}"
            )

    @property
    def has_global_scale(self) -> bool:
        """Whether a weight has a float32 scale in addition to those of its blocks."""
        return self.format.spec.scale_format == "e4m3"

    def check(self, weight: StoredTensor) -> None:
        """Raise ValueError if a weight cannot be encoded."""
        rows, columns = weight.shape
        block = self.format.spec.block_columns
        # The last block of 128 x 128 may be smaller, but ModelOpt does not allow that.
        multiple = 1 if self.format.spec.block_rows > 1 and self.convention != MODELOPT else block
        if not rows or not 1 <= columns <= _LONGEST_ROW or columns % multiple:
            raise ValueError(
                f"in: {weight.name} has the shape {weight.shape}; {self.format.name} takes rows of 1 to {_LONGEST_ROW} "
                f"values, a multiple of {multiple}; leave it as it is: --ignore '{weight.name.removesuffix('.weight')}'"
            )

    def outputs(self, module: str, shape: tuple[int, ...]) -> list[StoredTensor]:
        """The tensors that a weight becomes: its codes, its scales and, if there is one, its global scale."""
        is_modelopt, is_packed = self.convention == MODELOPT, self.format.spec.element == "e2m1"
        codes = "weight_packed" if is_packed and not is_modelopt else "weight"
        made = [
            StoredTensor(f"{module}.{codes}", self.format.codes, (shape[0], shape[1] // (2 if is_packed else 1))),
            StoredTensor(f"{module}.weight_scale", self.format.scales, self._shape_of_scales(*shape)),
        ]
        if self.has_global_scale:
            name = "weight_scale_2" if is_modelopt else "weight_global_scale"
            made.append(StoredTensor(f"{module}.{name}", "F32", () if is_modelopt else (1,)))
        return made

    def stored_global_scale(self, scale: float) -> bytes:
        """The stored content of a global encode scale: ModelOpt stores its inverse, the decode scale."""
        stored = 1 / np.float32(scale) if self.convention == MODELOPT else np.float32(scale)
        return bytes(stored.tobytes())

    def _shape_of_scales(self, rows: int, columns: int) -> tuple[int, ...]:
        spec, is_modelopt = self.format.spec, self.convention == MODELOPT
        if spec.block_size == "row":
            return (rows,) if is_modelopt else (rows, 1)
        down, across = -(-rows // spec.block_rows), -(-columns // spec.block_columns)
        return (down, 1, across, 1) if spec.block_rows > 1 and is_modelopt else (down, across)

    def configuration(self, ignored: Sequence[str]) -> dict[str, Any]:
        """The ``quantization_config`` of ``config.json``.

        Args:
            ignored: modules that are not quantized.
        """
        group = {
            "targets": ["Linear"], "weights": self.format.weights, "input_activations": self.format.activations,
            "output_activations": None,
        }  # fmt: skip
        # The head may be tied to the embedding and thus missing from the checkpoint.
        ignore = sorted({"lm_head", *ignored})
        if self.convention == MODELOPT:
            found = {"quant_method": MODELOPT, "quant_algo": self.format.algorithm, "ignore": ignore}
            return {**found, **self._group_size}
        return {
            "quant_method": COMPRESSED_TENSORS, "format": self.format.stored_as, "quantization_status": "compressed",
            "config_groups": {"group_0": {**group, "format": self.format.stored_as}}, "ignore": ignore,
            "kv_cache_scheme": None, "global_compression_ratio": None,
        }  # fmt: skip

    def beside_configuration(self, ignored: Sequence[str]) -> dict[str, Any] | None:
        """The content of ``hf_quant_config.json``, which ModelOpt writes in addition to the configuration."""
        if self.convention != MODELOPT:
            return None
        quantization = {
            "quant_algo": self.format.algorithm, "kv_cache_quant_algo": None, **self._group_size,
            "exclude_modules": sorted({"lm_head", *ignored}),
        }  # fmt: skip
        return {"producer": {"name": MODELOPT, "version": "jitnorm"}, "quantization": quantization}

    @property
    def _group_size(self) -> dict[str, int]:
        size = self.format.spec.block_size
        return {"group_size": size} if isinstance(size, int) else {}


def layout_of(format: str, convention: str = COMPRESSED_TENSORS) -> Layout:
    """The layout for a format's and a convention's names.

    Raises:
        ValueError: one is unknown, or they do not go together.
    """
    for name, value, known in (("format", format, tuple(FORMATS)), ("layout", convention, LAYOUTS)):
        if value not in known:
            meant = did_you_mean(value, known)
            raise ValueError(f"{name}: {value!r} is not known; use one of {', '.join(known)}{meant}")
    return Layout(FORMATS[format], convention)
