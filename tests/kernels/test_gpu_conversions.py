"""The GPU's conversions of all 2**32 floats, and of some on the host, compared with torch's and with comparisons."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from cute_on_host import ptx_of_text
from jitnorm.kernels.config import KernelConfig
from jitnorm.kernels.generator import compose
from jitnorm.kernels.launch_recipe import LAUNCHER_ABI
from jitnorm.kernels.quant_spec import NVFP4
from jitnorm.kernels.target import Target
from ptx_machine import run_ptx

from jitnorm.launcher import launcher
from jitnorm.toolchains import select

ROW = 8192  # floats of a block: 1024 threads of 8
CHUNK = 1 << 27

# A thread converts eight floats.
KERNELS = """
#define CONVERT(name, statement) \\
extern "C" __global__ __launch_bounds__(1024) void name( \\
    const float* from, Int64 stride, UInt16* to, Int64 rows) { \\
  float v[8]; \\
  const Int64 at = blockIdx.x * stride + threadIdx.x * 8; \\
  for (int i = 0; i < 8; ++i) v[i] = from[at + i]; \\
  for (int i = 0; i < 8; ++i) { UInt16& result = to[at + i]; statement; } \\
}
// What a kernel encodes is a product, so a NaN among it is the arithmetic's own; `rows` is at least 1.
__device__ UInt32 encode_products(const float* v, Int64 rows) {
  float products[8];
  for (int i = 0; i < 8; ++i) products[i] = mul_rn(v[i], rows > 0 ? 1.0f : 0.0f);
  return encode_word<Element::kE2M1>(products, 1.0f);
}
// What ordinary blocks take, up to their bound; above it all codes are the largest.
__device__ float bounded_value(float v) { return magnitude_of(v) < 7.0f ? v : v < 0.0f ? -6.0f : 6.0f; }
__device__ UInt32 encode_fast(const float* v) {
  float values[8];
  for (int i = 0; i < 8; ++i) values[i] = bounded_value(v[i]);
  return fast_e2m1(values, kFastUnit);
}
__device__ UInt32 encode_rounded(const float* v) {
  float values[8];
  for (int i = 0; i < 8; ++i) values[i] = rounded_to_e2m1(magnitude_of(bounded_value(v[i])) * kE2M1Unit, kE2M1Unit);
  return codes_of_values(values);
}
__device__ UInt32 encode_int8(float a) { return convert_int8x4(a, 0.0f, 0.0f, 0.0f) & 0xffu; }
CONVERT(to_e2m1, result = (UInt16)(encode_products(v, rows) >> (4 * i) & 15u))
CONVERT(to_fast_e2m1, result = (UInt16)(encode_fast(v) >> (4 * i) & 15u))
CONVERT(to_rounded_e2m1, result = (UInt16)(encode_rounded(v) >> (4 * i) & 15u))
CONVERT(to_e4m3, result = (UInt16)encode_e4m3(v[i]))
CONVERT(to_e5m2, result = (UInt16)(encode_e5m2(v[i]) & 0xffu))
CONVERT(to_int8, result = (UInt16)encode_int8(v[i]))
CONVERT(to_int8_word,
        result = convert_int8x4(1.0f, -2.0f, 3.0f, v[i]) == (0x03fe01u | encode_int8(v[i]) << 24))
CONVERT(to_bfloat16, BFloat16 h; round_to(v[i], h); result = h.bits)
CONVERT(to_float16, Float16 h; round_to(v[i], h); result = h.bits)
// Whether the fast reciprocal is the exact one, or says by zero or NaN that it is not.
__device__ bool is_right(float a) {
  const float fast = fast_reciprocal(a), exact = __frcp_rn(a);
  return bits_of(reciprocal_rn(a)) == bits_of(exact) && (!(magnitude_of(fast) > 0.0f) || fast == exact);
}
CONVERT(to_reciprocal, result = is_right(v[i]))
CONVERT(to_quotient,
        result = !is_in_normal_range(v[i]) || fast_quotient(v[i], 7168.0f, 1.0f / 7168.0f) == v[i] / 7168.0f)
// Whether a scale and its reciprocal, found without branches, are those of the divisions; an amax has no sign.
__device__ bool has_right_scale(float amax) {
  const float fast = fp8_scale_from(amax), exact = exact_fp8_scale(amax);
  const float reciprocal = reciprocal_of_scale(fast), exact_reciprocal = reciprocal_rn(exact);
  return bits_of(fast) == bits_of(exact) && bits_of(reciprocal) == bits_of(exact_reciprocal);
}
CONVERT(to_scale, result = has_right_scale(magnitude_of(v[i])))
// Whether a block's value, chosen by all bits of a global scale, is divided by that as it must be.
__device__ bool is_divided_right(float by) {
  const UInt32 any = bits_of(by) * 0x9e3779b1u;
  const float value = mul_rn(decode_e2m1(any >> 28), decode_e4m3((any >> 16 & 0xffu) % 0x7fu));
  return !is_moderate(by) || bits_of(fast_quotient(value, by, reciprocal_rn(by))) == bits_of(value / by);
}
CONVERT(to_block_quotient, result = is_divided_right(v[i]))
CONVERT(to_reciprocal_root,
        result = !is_in_normal_range(v[i]) || fast_reciprocal_root(v[i]) == reciprocal_rn(sqrt_rn(v[i])))
"""

# A thread decodes as many words as have eight values; each word is repeated for all of its values.
DECODING = """
extern "C" __global__ __launch_bounds__(1024) void decode(const float* words, Int64 stride, float* to, Int64 rows) {
  const Int64 at = blockIdx.x * stride + threadIdx.x * 8;
  for (int i = 0; i < 8; i += kCodesPerWord) {
    float values[kCodesPerWord];
    decode_word<kElement>(bits_of(words[at + i]), values);
    for (int j = 0; j < kCodesPerWord; ++j) to[at + i + j] = values[j];
  }
}
"""

_ENTRY = re.compile(r"^CONVERT\((?P<name>\w+),.*?\)\n", re.MULTILINE | re.DOTALL)


def e2m1(x: torch.Tensor) -> torch.Tensor:
    """Encode by comparing with midpoints, which belong to the even code."""
    m = x.abs()
    code = (m > 0.25).short() + (m >= 0.75) + (m > 1.25) + (m >= 1.75) + (m > 2.5) + (m >= 3.5) + (m > 5)
    return torch.where(x.isnan(), 7, code + 8 * x.signbit())


def fast_e2m1(x: torch.Tensor) -> torch.Tensor:
    return e2m1(x)


def rounded_e2m1(x: torch.Tensor) -> torch.Tensor:
    return e2m1(x.abs())


def e4m3(x: torch.Tensor) -> torch.Tensor:
    code = x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).short()
    return torch.where(x.isnan(), 0x7F, code)


def e5m2(x: torch.Tensor) -> torch.Tensor:
    code = x.clamp(-57344, 57344).to(torch.float8_e5m2).view(torch.uint8).short()
    return torch.where(x.isnan(), 0x7F, code)


def int8(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(0, torch.inf, -torch.inf).clamp(-128, 127).round().to(torch.int8).view(torch.uint8).short()


def int8_word(x: torch.Tensor) -> torch.Tensor:
    """Whether the fourth code has the place above three others."""
    return torch.ones_like(x)


def bfloat16(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), 0x7FFF, x.bfloat16().view(torch.int16))


def float16(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), 0x7FFF, x.half().view(torch.int16))


def reciprocal(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def quotient(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def scale(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def block_quotient(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def reciprocal_root(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


def recipe(entry: str, target: Target, out: str = "int16") -> str:
    common = {"kind": "tensor", "single": False, "alignment": 4, "may_be": "", "shape": ["...", ROW]}
    common |= {"row_set": 0, "table_dims": 0, "flat": False, "if_empty": 0.0}
    arguments = [
        {**common, "name": "input", "dtypes": ["float32"], "output": False, "strided": True},
        {**common, "name": "out", "dtypes": [out], "output": True, "strided": False},
    ]
    fields: dict[str, Any] = {"abi": LAUNCHER_ABI, "entry": entry, "row_dims": 1, "arguments": arguments}
    fields |= {"batched": False, "heads": False, "items": None}
    launch = {"grid": "M", "block": ROW // 8, "cluster": 1, "shared_bytes": 0, "pdl": False}
    return json.dumps({**fields, **launch, "device": "cuda", "capability": list(target.capability), "family": False})


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.of_capability(*torch.cuda.get_device_capability())


@pytest.fixture(scope="module")
def cubin(target: Target) -> bytes:
    return select(target).compile(compose(KernelConfig("rmsnorm", 64, quant=NVFP4), target, KERNELS), target)


def all_floats() -> Iterator[torch.Tensor]:
    for start in range(-(1 << 31), 1 << 31, CHUNK):
        bits = torch.arange(start, start + CHUNK, dtype=torch.int64, device="cuda").int()
        yield bits.view(torch.float32).view(-1, ROW)


CONVERSIONS = [
    e2m1, fast_e2m1, rounded_e2m1, e4m3, e5m2, int8, int8_word, bfloat16, float16, reciprocal, quotient, scale,
    block_quotient, reciprocal_root,
]  # fmt: skip


def some_floats() -> torch.Tensor:
    """Values of E2M1, their midpoints and neighbours; floats of their range; any bits."""
    numbers = np.random.default_rng(0)
    steps = torch.arange(-64, 65, dtype=torch.float32) / 8
    exact = torch.cat([steps, steps.nextafter(torch.tensor(9.0)), steps.nextafter(torch.tensor(-9.0))])
    ranged = torch.from_numpy(numbers.uniform(-8, 8, ROW - len(exact)).astype(np.float32))
    bits = torch.from_numpy(numbers.integers(0, 1 << 32, ROW, dtype=np.uint32).view(np.float32))
    return torch.cat([exact, ranged, bits]).view(2, ROW)


@pytest.mark.parametrize("expected", CONVERSIONS)
def test_some_floats_round_to_the_nearest_value_on_the_host(expected: Callable[[torch.Tensor], torch.Tensor]) -> None:
    kernel = _ENTRY.sub(lambda found: found[0] if found["name"] == f"to_{expected.__name__}" else "", KERNELS)
    source = compose(KernelConfig("rmsnorm", 64, quant=NVFP4), Target("sm_90a"), kernel)
    x = some_floats()
    memory = np.concatenate([x.numpy().view(np.uint8).ravel(), np.full(2 * x.numel(), 0xFF, np.uint8)])
    run_ptx(ptx_of_text(source, Target("sm_90a")), memory, [0, ROW, 4 * x.numel(), len(x)], len(x), ROW // 8, 1)
    out = torch.from_numpy(memory[4 * x.numel() :].view(np.int16)).view_as(x)
    wrong = out != expected(x).short()
    assert not wrong.any(), f"{x[wrong][0].item()!r}: {out[wrong][0].item():#06x}"


@pytest.mark.gpu
@pytest.mark.parametrize("expected", CONVERSIONS)
def test_every_float_rounds_to_the_nearest_value(
    expected: Callable[[torch.Tensor], torch.Tensor], cubin: bytes, target: Target
) -> None:
    convert = launcher().load_kernel(recipe(f"to_{expected.__name__}", target), cubin)
    for x in all_floats():
        out = torch.full(x.shape, -1, dtype=torch.int16, device="cuda")
        convert(x, out)
        wrong = out != expected(x).short()
        assert not wrong.any(), f"{x[wrong][0].item()!r}: {out[wrong][0].item():#06x}"


# Encodings of a configuration that decodes, and the dtypes of their codes.
ELEMENTS = {
    "e2m1/16/e4m3": ml_dtypes.float4_e2m1fn, "e4m3/row/f32": ml_dtypes.float8_e4m3fn,
    "e5m2/row/f32": ml_dtypes.float8_e5m2, "int8/row/f32": np.int8,
}  # fmt: skip


def some_words(quant: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words of codes as rows of floats, repeated for each of their values, and these values."""
    bits = 4 if quant.startswith("e2m1") else 8
    words = np.random.default_rng(1).integers(0, 1 << 32, count * bits // 32, dtype=np.uint32)
    codes = words[:, None] >> (bits * np.arange(32 // bits, dtype=np.uint32)) & (1 << bits) - 1
    values = codes.astype(np.uint8).view(ELEMENTS[quant]).astype(np.float32)
    values[np.isnan(values)] = np.uint32(0x7FFFFFFF).view(np.float32)
    rows = np.repeat(words, 32 // bits).view(np.int32), values.view(np.int32)
    return tuple(torch.from_numpy(each.reshape(-1, ROW)) for each in rows)


@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("quant", ELEMENTS)
def test_words_decode_to_the_values_of_their_codes_on_the_host(quant: str, name: str) -> None:
    source = compose(KernelConfig.parse(f"dequantize:hidden_size=64,quant={quant}"), Target(name), DECODING)
    words, values = some_words(quant, 2 * ROW)
    memory = np.concatenate([words.numpy().view(np.uint8).ravel(), np.full(words.nbytes, 0xFF, np.uint8)])
    run_ptx(ptx_of_text(source, Target(name)), memory, [0, ROW, words.nbytes, 2], 2, ROW // 8, 1)
    assert torch.equal(torch.from_numpy(memory[words.nbytes :].view(np.int32)).view_as(values), values)


@pytest.mark.gpu
@pytest.mark.parametrize("quant", ELEMENTS)
def test_words_decode_to_the_values_of_their_codes(quant: str, target: Target) -> None:
    config = KernelConfig.parse(f"dequantize:hidden_size=64,quant={quant}")
    code = select(target).compile(compose(config, target, DECODING), target)
    words, values = some_words(quant, 1 << 24)
    out = torch.empty(words.shape, device="cuda")
    launcher().load_kernel(recipe("decode", target, "float32"), code)(words.cuda().view(torch.float32), out)
    assert torch.equal(out.cpu().view(torch.int32), values)
