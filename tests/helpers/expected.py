"""The expected results of ops, byte for byte, from the NumPy reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.launcher import launcher
from jitnorm.reference import ScaleFormat, quantize_fp4, rmsnorm_f32, round_to, swizzle_scales

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Fp4Options:
    """The options of a call of `rmsnorm_fp4quant`; their text names the test cases."""

    block_size: int = 16
    scale_format: ScaleFormat = "e4m3"
    layout: str = "linear"
    global_scale: float | None = None

    def __str__(self) -> str:
        scale = "" if self.global_scale is None else f"-global{self.global_scale:g}"
        return f"{self.block_size}-{self.scale_format}-{self.layout}{scale}"

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of the call, except for the tensor `global_scale`."""
        return {
            "block_size": self.block_size,
            "scale_format": self.scale_format,
            "is_sf_swizzled_layout": self.layout == "128x4",
            "output_both_sf_layouts": self.layout == "both",
        }

    def given_global_scale(self) -> NDArray[np.float32] | None:
        return None if self.global_scale is None else np.array([self.global_scale], np.float32)


NVFP4 = Fp4Options()
MXFP4 = Fp4Options(32, "ue8m0")
FORMATS = [NVFP4, MXFP4, Fp4Options(16, "ue8m0"), Fp4Options(32, "e4m3")]
LAYOUTS = ["linear", "128x4", "both"]


def expected_rmsnorm(x: NDArray[Any], weight: NDArray[Any], eps: float = 1e-6) -> NDArray[Any]:
    """The expected result of rmsnorm for a NumPy array with any number of dimensions."""
    rounded: NDArray[Any] = round_to(rmsnorm_f32(_rows(x), weight, eps), x.dtype)
    return rounded.reshape(x.shape)


def expected_fp4(x: NDArray[Any], weight: NDArray[Any], options: Fp4Options, eps: float = 1e-6) -> tuple[Bytes, ...]:
    """The expected outputs of rmsnorm_fp4quant, as bytes."""
    y = rmsnorm_f32(_rows(x), weight, eps)
    codes, scales = quantize_fp4(
        y,
        block_size=options.block_size,
        scale_format=options.scale_format,
        global_scale=options.global_scale,
    )
    leading = x.shape[:-1]
    codes, linear = codes.reshape(*leading, codes.shape[-1]), scales.reshape(*leading, scales.shape[-1])
    if options.layout == "linear":
        return codes, linear
    swizzled = swizzle_scales(scales, "128x4")
    return (codes, swizzled) if options.layout == "128x4" else (codes, swizzled, linear)


def _rows(x: NDArray[Any]) -> NDArray[Any]:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def as_bytes(tensor: Any) -> Bytes:
    """The bytes of a tensor of any framework; the last dimension counts bytes."""
    if type(tensor).__module__.startswith("torch"):
        import torch

        tensor = tensor.detach().view(torch.uint8).cpu().numpy()
    elif type(tensor).__module__.startswith("cupy"):
        tensor = tensor.view("uint8").get()
    elif type(tensor).__module__.startswith("tvm_ffi"):
        from torch.utils.dlpack import from_dlpack

        # torch's import of DLPack lacks the narrowest dtypes in some versions.
        is_narrow = str(tensor.dtype).startswith(("float4", "float8"))
        return as_bytes(from_dlpack(launcher().reinterpret(tensor, "uint8") if is_narrow else tensor))
    return np.ascontiguousarray(tensor).view(np.uint8)


def assert_same_bytes(actual: Any, expected: Any, what: str = "output") -> None:
    """Compare byte for byte, and report the first difference."""
    got, wanted = as_bytes(actual), as_bytes(expected)
    assert got.shape == wanted.shape, f"{what}: shape in bytes is {got.shape}, expected {wanted.shape}"
    if got.tobytes() == wanted.tobytes():
        return
    where = np.argwhere(got != wanted)
    first = tuple(where[0])
    raise AssertionError(
        f"{what}: {len(where)} of {got.size} bytes differ, the first at {first}: "
        f"{got[first]:#04x}, expected {wanted[first]:#04x}"
    )


def assert_all_same(actual: Any, expected: Any) -> None:
    """`assert_same_bytes` for the outputs of rmsnorm_fp4quant."""
    assert len(actual) == len(expected)
    names = ("y_fp4", "block_scale", "block_scale_unswizzled")
    for name, got, wanted in zip(names, actual, expected, strict=False):
        assert_same_bytes(got, wanted, name)
