"""Divisions, reciprocals and roots without branches, on the host: exact for every mantissa."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from host_program import load_with_headers
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.quant_spec import FP8_TOKEN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


RECIPROCALS = """
extern "C" Int64 wrong_reciprocals() {
  Int64 wrong = 0;
  for (UInt32 mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float a = float_of(0x3f800000u | mantissa), exact = 1.0f / a;
    for (int ulp = -1; ulp <= 1; ++ulp) {
      const float r = float_of(bits_of(exact) + ulp);
      const double error = r - 1.0 / a;  // ulps of reciprocals are 2^-24
      const bool is_near = error < 0x1p-24 && error > -0x1p-24 && (mantissa != 0x7fffff || r != 0.5f);
      wrong += is_near && fma_rn(r, fma_rn(-a, r, 1.0f), r) != exact;
    }
  }
  return wrong;
}
"""


def test_a_step_of_newton_s_makes_reciprocals_exact_that_are_less_than_an_ulp_off(folder: Path) -> None:
    """`fast_reciprocal` in cuda/intrinsics.cuh: other exponents, as long as they are normal, only move the results.

    The one exception, 1/2 for 2 - 2^-23, is none of the GPU's approximations: CUDA's own reciprocal takes this step.
    """
    library = load_with_headers(KernelConfig("rmsnorm", 64), RECIPROCALS, folder)
    library.wrong_reciprocals.restype = ctypes.c_int64
    assert library.wrong_reciprocals() == 0


FAST_PATH = """
extern "C" Int64 wrong_quotients(Int64 divisor) {
  const float size = (float)divisor;
  Int64 wrong = 0;
  for (UInt32 mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float a = float_of(0x3f800000u | mantissa);
    wrong += fast_quotient(a, size, 1.0f / size) != a / size;
  }
  return wrong;
}

// Of E2M1's values, 1.5 and powers of two, times E4M3's, from 8 to 15 times powers of two, by any mantissa.
extern "C" Int64 wrong_block_quotients() {
  Int64 wrong = 0;
  for (UInt32 mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float divisor = float_of(0x3f800000u | mantissa), reciprocal = 1.0f / divisor;
    for (int i = 0; i < 16; ++i) {
      const float a = (float)(8 + i % 8) * (i < 8 ? 1.0f : 1.5f);
      wrong += fast_quotient(a, divisor, reciprocal) != a / divisor;
    }
    wrong += bits_of(fast_quotient(-0.0f, divisor, reciprocal)) != 0x80000000u;
    wrong += bits_of(fast_quotient(0.0f, divisor, reciprocal)) != 0u;
  }
  return wrong;
}

// The reciprocal of `root`, in [1, 2), from one that is near: a step rounded up, exact in integers, and one more.
static bool is_right(UInt32 mantissa, int ulps) {
  const float root = float_of(0x3f800000u | mantissa);
  const Int64 r = (Int64)(1.0 / root * 0x1p24 + 0.5) + ulps;  // units of 2^-24
  if (r > 1 << 24) return true;
  const float error = fma_rn(-root, (float)r * 0x1p-24f, 1.0f);  // a multiple of 2^-47
  const __int128 sum = ((__int128)r << 47) + r * (Int64)(error * 0x1p47f);
  const float near = (float)(Int64)((sum + (((__int128)1 << 47) - 1)) >> 47) * 0x1p-24f;
  return fma_rn(near, fma_rn(-root, near, 1.0f), near) == 1.0f / root;
}

extern "C" Int64 wrong_roots() {
  Int64 wrong = 0;
  for (UInt32 mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    for (int ulps = -4; ulps <= 4; ++ulps) wrong += !is_right(mantissa, ulps);
  }
  return wrong;
}
"""


@pytest.fixture(scope="module")
def fast_path(folder: Path) -> ctypes.CDLL:
    library = load_with_headers(KernelConfig("rmsnorm", 64, quant=FP8_TOKEN), FAST_PATH, folder)
    for function in (library.wrong_quotients, library.wrong_block_quotients, library.wrong_roots):
        function.restype = ctypes.c_int64
    return library


@pytest.mark.parametrize("divisor", [3, 7, 127, 448, 1536, 7168, 57344, 131071, 262143])
def test_one_step_makes_quotients_by_a_hidden_size_or_a_largest_code_exact(
    divisor: int, fast_path: ctypes.CDLL
) -> None:
    """`fast_quotient` in common/fast_path.h, for every mantissa."""
    assert fast_path.wrong_quotients(ctypes.c_int64(divisor)) == 0


def test_one_step_makes_quotients_of_block_values_by_a_global_scale_exact(fast_path: ctypes.CDLL) -> None:
    """`fast_quotient` of what NVFP4 decodes to, for every mantissa of the global scale."""
    assert fast_path.wrong_block_quotients() == 0


def test_two_steps_make_exact_reciprocals_of_roots_from_what_is_off_by_a_part_in_two_to_the_22(
    fast_path: ctypes.CDLL,
) -> None:
    """`fast_reciprocal_root` in common/fast_path.h, for every mantissa of the root.

    `rsqrt.approx` is off by 2^-22.9 at most, the root by 2^-24: together by less than 2^-22, which is up to four ulps.
    """
    assert fast_path.wrong_roots() == 0
