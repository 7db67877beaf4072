"""NVIDIA's conversions, from cuda_fp4.h and cuda_fp8.h compiled for the host, give the same codes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from host_program import call_over
from numpy.typing import NDArray

from jitnorm.reference import encode_e2m1, encode_e4m3, encode_e5m2
from jitnorm.reference.ue8m0 import ue8m0_scales
from jitnorm.toolchains.cxx import Cxx
from jitnorm.toolchains.search import on_sys_path

_HEADER = on_sys_path("nvidia/cu13/include/cuda_fp4.h")
pytestmark = pytest.mark.skipif(_HEADER is None, reason='the CUDA headers are missing: pip install "jitnorm[dev]"')

PROGRAM = """
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#define CONVERT(name, result) \\
extern "C" void name(const float* from, long long count, unsigned char* to) { \\
  for (long long i = 0; i < count; ++i) to[i] = (unsigned char)(result); \\
}
CONVERT(e2m1, __nv_cvt_float_to_fp4(from[i], __NV_E2M1, cudaRoundNearest))
CONVERT(e4m3, __nv_cvt_float_to_fp8(from[i], __NV_SATFINITE, __NV_E4M3))
CONVERT(e5m2, __nv_cvt_float_to_fp8(from[i], __NV_SATFINITE, __NV_E5M2))
CONVERT(ue8m0, __nv_cvt_float_to_e8m0(from[i], __NV_SATFINITE, cudaRoundPosInf))
"""


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    assert _HEADER is not None
    include = _HEADER.parent
    library: Path = tmp_path_factory.mktemp("headers") / "conversions.so"
    flags = ("-std=c++17", "-O2", f"-I{include}", f"-I{include / 'cccl'}")
    library.write_bytes(Cxx().build_shared(PROGRAM, flags))
    return ctypes.CDLL(str(library))


def floats_near(values: NDArray[Any]) -> NDArray[np.float32]:
    """Any bit patterns except NaN, and floats within 4 ulp of the values and of the midpoints between them."""
    values = np.unique(np.abs(values.astype(np.float32)))
    values = values[np.isfinite(values)]
    edges = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    near = (edges.view(np.uint32)[:, None].astype(np.int64) + np.arange(-4, 5)).clip(0, 0x7F7FFFFF)
    patterns = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    found = np.concatenate([near.astype(np.uint32).ravel(), patterns]).view(np.float32)
    found = np.concatenate([found, -found])
    return found[~np.isnan(found)]


@pytest.mark.parametrize(
    ("name", "encode", "dtype"),
    [
        ("e2m1", encode_e2m1, ml_dtypes.float4_e2m1fn),
        ("e4m3", encode_e4m3, ml_dtypes.float8_e4m3fn),
        ("e5m2", encode_e5m2, ml_dtypes.float8_e5m2),
    ],
)
def test_every_code_is_theirs(headers: ctypes.CDLL, name: str, encode: Callable[[Any], Any], dtype: Any) -> None:
    codes = np.arange(16 if name == "e2m1" else 256, dtype=np.uint8)
    floats = floats_near(codes.view(dtype))
    theirs = call_over(getattr(headers, name), floats, np.uint8)
    assert (encode(floats) == theirs & (0xF if name == "e2m1" else 0xFF)).all()


def test_a_power_of_two_scale_is_theirs_rounded_up(headers: ctypes.CDLL) -> None:
    """This holds for normal quotients; our scales of denormals are smaller, as docs/numerics.md says."""
    floats = floats_near(2.0 ** np.arange(-125, 127))
    amax = floats[(floats >= 2.0**-100) & (floats <= 2.0**126)]
    sixth = np.float32(1 / 6)
    ours, _ = ue8m0_scales(amax, "up", reciprocal=sixth, max_exponent=2, even_from=1.75)
    assert (ours == call_over(headers.ue8m0, amax * sixth, np.uint8)).all()
