"""The ops as plain torch programs, which torch.compile fuses: the alternative to jitnorm.

Their codes equal jitnorm's except for rounding, because the squares are summed in another order, and for the signs of
zeros in blocks of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from jitnorm.bench.calls import Call
from jitnorm.bench.shapes import Shape
from jitnorm.bench.tensors import Tensors

Program = Callable[..., tuple[Any, ...]]
Encoder = Callable[[Any], tuple[Any, ...]]
"""From the float32 norm to what is written."""


def normed(encode: Encoder) -> Program:
    """RMSNorm of x by w, encoded."""
    return lambda x, w: encode(_rms(x.float(), w))


def added(encode: Encoder) -> Program:
    """The same for x + r, and that sum."""

    def program(x: Any, r: Any, w: Any) -> tuple[Any, ...]:
        h = x.float() + r.float()
        return (*encode(_rms(h, w)), h.to(x.dtype))

    return program


def alone(encode: Encoder) -> Program:
    """Encode x."""
    return lambda x: encode(x.float())


def _rms(h: Any, w: Any) -> Any:
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * w.float()


def rounded(y: Any) -> tuple[Any, ...]:
    """To bfloat16."""
    return (y.to(torch.bfloat16),)


def fp8_token(y: Any) -> tuple[Any, ...]:
    """FP8 with a scale for each row."""
    scale = (y.abs().amax(-1, keepdim=True) / 448).clamp(min=1 / (512 * 448))
    return _e4m3(y * (1 / scale)), scale.squeeze(-1)


def fp8_group(y: Any) -> tuple[Any, ...]:
    """FP8 with a scale for each 128 values."""
    blocks = _blocks(y, 128)
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
    return _e4m3(blocks * (1 / scale)).view(y.shape), scale.squeeze(-1)


def mxfp8(y: Any) -> tuple[Any, ...]:
    """MXFP8."""
    blocks = _blocks(y, 32)
    scale, encode = _ue8m0(blocks.abs().amax(-1, keepdim=True) * (1 / 448))
    return _e4m3(blocks * encode).view(y.shape), scale


def mxfp4(y: Any) -> tuple[Any, ...]:
    """MXFP4."""
    blocks = _blocks(y, 32)
    scale, encode = _ue8m0(blocks.abs().amax(-1, keepdim=True) * (1 / 6))
    return _packed(_e2m1(blocks * encode).view(y.shape)), scale


def nvfp4(y: Any) -> tuple[Any, ...]:
    """NVFP4 without a global scale."""
    blocks = _blocks(y, 16)
    scale = _e4m3(blocks.abs().amax(-1, keepdim=True) * (1 / 6))
    encode = (1 / scale.float()).clamp(max=torch.finfo(torch.float32).max)
    return _packed(_e2m1(blocks * encode).view(y.shape)), scale.squeeze(-1)


def _blocks(y: Any, size: int) -> Any:
    return y.view(*y.shape[:-1], -1, size)


def _e4m3(y: Any) -> Any:
    return y.clamp(-448, 448).to(torch.float8_e4m3fn)


def _ue8m0(p: Any) -> tuple[Any, Any]:
    """The exponent of the smallest power of two not below p, and the inverse of that power."""
    exponent = ((p.view(torch.int32) + 0x7FFFFF) >> 23).clamp(max=253)
    return exponent.to(torch.uint8).squeeze(-1), ((254 - exponent) << 23).view(torch.float32)


def _e2m1(y: Any) -> Any:
    """Codes from 0 to 15: each begins at the midpoint between two values, which rounds to the even one."""
    a = y.abs()
    begun = (a > 0.25, a >= 0.75, a > 1.25, a >= 1.75, a > 2.5, a >= 3.5, a > 5)
    code = y.view(torch.int32) >> 28 & 8  # the sign
    for is_beyond in begun:
        code = code + is_beyond.to(torch.int32)
    return code


def _packed(codes: Any) -> Any:
    pairs = codes.view(*codes.shape[:-1], -1, 2)
    return (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8)


PROGRAMS: dict[str, tuple[Program, str]] = {
    "rmsnorm": (normed(rounded), "xw"),
    "add_rmsnorm": (added(rounded), "xrw"),
    "fp8 token": (normed(fp8_token), "xw"),
    "add fp8 token": (added(fp8_token), "xrw"),
    "rmsnorm fp8 128": (normed(fp8_group), "xw"),
    "add fp8 128": (added(fp8_group), "xrw"),
    "rmsnorm nvfp4": (normed(nvfp4), "xw"),
    "rmsnorm mxfp4": (normed(mxfp4), "xw"),
    "rmsnorm mxfp8": (normed(mxfp8), "xw"),
    "add nvfp4": (added(nvfp4), "xrw"),
    "add mxfp4": (added(mxfp4), "xrw"),
    "add mxfp8": (added(mxfp8), "xrw"),
    "nvfp4 alone": (alone(nvfp4), "x"),
    "mxfp4 alone": (alone(mxfp4), "x"),
    "mxfp8 alone": (alone(mxfp8), "x"),
}
"""By the names of ops: the program, and what it takes: input, residual, weight."""


def compiled_call(op: str, new: Tensors, m: int, h: int) -> Call:
    """A call of a program that torch.compile has fused for this one shape; its first run compiles it."""
    program, inputs = _compiled(op, (m, h)), PROGRAMS[op][1]
    tensors = [new.bfloat16(h) if name == "w" else new.bfloat16(m, h) for name in inputs]
    return lambda: program(*tensors)


@lru_cache(maxsize=1)
def _compiled(op: str, shape: Shape) -> Program:
    """Compile for all buffers of a shape; drops what was compiled for other shapes, because torch keeps only a few."""
    torch._dynamo.reset()
    program: Program = torch.compile(PROGRAMS[op][0], fullgraph=True, dynamic=False)
    return program
