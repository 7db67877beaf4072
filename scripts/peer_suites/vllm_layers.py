"""Layers of vLLM, and its quantization, in plain torch: its tests compare with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from not_here import NotHereError
from torch.nn import functional

from jitnorm.compat.vllm import _C

Norms = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
FP8_MAX = 448.0


class RMSNorm(torch.nn.Module):
    """vLLM's layer: its call runs the kernels, `forward_native` the definition."""

    def __init__(self, hidden_size: int, eps: float = 1e-6, has_weight: bool = True) -> None:
        super().__init__()
        self.variance_epsilon = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size)) if has_weight else None

    def forward_native(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Norms:
        """The norm in float32, rounded to the input's dtype before the weight."""
        total = x.float() if residual is None else x.float() + residual.float()
        rounded = total.to(x.dtype)
        y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + self.variance_epsilon)
        y = y.to(x.dtype) if self.weight is None else y.to(x.dtype) * self.weight
        return y if residual is None else (y, rounded)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Norms:
        """The norm by the kernels; with a residual, in place."""
        if residual is not None:
            _C.fused_add_rms_norm(x, residual, self.weight, self.variance_epsilon)
            return x, residual
        out = torch.empty_like(x)
        _C.rms_norm(out, x, self.weight, self.variance_epsilon)
        return out


class RotaryEmbedding(torch.nn.Module):
    """vLLM's layer: a table of cosines and sines, and what `forward_native` does with it."""

    cos_sin_cache: torch.Tensor

    def __init__(
        self, head_size: int, rotary_dim: int, max_position_embeddings: int, base: float, is_neox_style: bool,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__()
        self.head_size, self.rotary_dim, self.is_neox_style = head_size, rotary_dim, is_neox_style
        frequencies = base ** -(torch.arange(0, rotary_dim, 2).float() / rotary_dim)
        turns = torch.arange(max_position_embeddings).float()[:, None] * frequencies
        self.register_buffer("cos_sin_cache", torch.cat([turns.cos(), turns.sin()], -1).to(dtype))

    def forward_native(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Both turned, step by step in their dtype."""
        cos, sin = self.cos_sin_cache[positions.flatten()].unsqueeze(-2).chunk(2, dim=-1)
        return self._turned(query, cos, sin), None if key is None else self._turned(key, cos, sin)

    def forward(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Both turned by the kernel, in place."""
        _C.rotary_embedding(positions, query, key, self.head_size, self.cos_sin_cache, self.is_neox_style)
        return query, key

    def _turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        heads = x.reshape(cos.shape[0], -1, self.head_size)
        part, rest = heads.split([self.rotary_dim, self.head_size - self.rotary_dim], dim=-1)
        first, second = part.chunk(2, dim=-1) if self.is_neox_style else (part[..., ::2], part[..., 1::2])
        both = first * cos - second * sin, second * cos + first * sin
        turned = torch.cat(both, -1) if self.is_neox_style else torch.stack(both, -1).flatten(-2)
        return torch.cat([turned, rest], -1).view(x.shape)


def get_rope(
    head_size: int, max_position: int, is_neox_style: bool = True, rope_parameters: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> RotaryEmbedding:  # fmt: skip
    """The layer of these parameters, of those whose type is the default one."""
    parameters = {"rope_theta": 10000.0, "partial_rotary_factor": 1.0, "rope_type": "default"} | (rope_parameters or {})
    if parameters["rope_type"] != "default":
        raise NotHereError(f"get_rope of {parameters['rope_type']}")
    rotary_dim = int(head_size * parameters["partial_rotary_factor"])
    base = parameters["rope_theta"]
    return RotaryEmbedding(head_size, rotary_dim, max_position, base, is_neox_style, dtype or torch.get_default_dtype())


class Activation(torch.nn.Module):
    """A layer of an activation: a kernel, and what it computes."""

    kernel = ""
    is_gated = True
    numbers: tuple[float, ...] = ()
    native: Callable[[torch.Tensor], torch.Tensor]

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """The activation, times the values if it is gated."""
        if not self.is_gated:
            return self.native(x)
        gate, value = x.chunk(2, dim=-1)
        return self.native(gate) * value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same by the kernel."""
        columns = x.shape[-1] // 2 if self.is_gated else x.shape[-1]
        out = x.new_empty(*x.shape[:-1], columns)
        getattr(_C, self.kernel)(out, x, *self.numbers)
        return out


class SiluAndMul(Activation):
    """SwiGLU."""

    kernel = "silu_and_mul"

    def __init__(self, *, compile_native: bool = True) -> None:
        super().__init__()

    @staticmethod
    def forward_native(x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The activation, times the values."""
        gate, value = x.chunk(2, dim=-1)
        return functional.silu(gate) * value


class MulAndSilu(Activation):
    """SwiGLU of values and then gates."""

    kernel = "mul_and_silu"

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """The values, times the activation."""
        value, gate = x.chunk(2, dim=-1)
        return value * functional.silu(gate)


class SiluAndMulWithClamp(Activation):
    """SwiGLU of gates and values within a limit."""

    kernel = "silu_and_mul_with_clamp"

    def __init__(self, limit: float, *, alpha: float = 1.0, beta: float = 0.0, compile_native: bool = True) -> None:
        super().__init__()
        self.alpha, self.beta, self.numbers = alpha, beta, (limit, alpha, beta)
        self.forward_cuda = self._forward_method = self.forward

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """Gates up to the limit, values within it."""
        limit, alpha, beta = self.numbers
        gate, value = x.chunk(2, dim=-1)
        gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (value + beta)


class FatreluAndMul(Activation):
    """Gates above a threshold, times values."""

    kernel = "fatrelu_and_mul"

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.numbers = (threshold,)

    def native(self, gate: torch.Tensor) -> torch.Tensor:
        """The gate, or zero."""
        return functional.threshold(gate, self.numbers[0], 0.0)


class GeluAndMul(Activation):
    """GeGLU."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate
        self.kernel = "gelu_and_mul" if approximate == "none" else "gelu_tanh_and_mul"

    def native(self, gate: torch.Tensor) -> torch.Tensor:
        """GELU."""
        return functional.gelu(gate, approximate=self.approximate)


class SwigluOAIAndMul(Activation):
    """The gates of gpt-oss, which take turns with values."""

    kernel = "swigluoai_and_mul"
    alpha, limit = 1.702, 7.0

    def forward_native(self, x: torch.Tensor) -> torch.Tensor:
        """Gates up to the limit, values from its negative to it."""
        gate, value = x[..., ::2].clamp(max=self.limit), x[..., 1::2].clamp(-self.limit, self.limit)
        return gate * torch.sigmoid(gate * self.alpha) * (value + 1)


class NewGELU(Activation):
    """GELU by tanh."""

    kernel = "gelu_new"
    is_gated = False

    def native(self, gate: torch.Tensor) -> torch.Tensor:
        """GELU by tanh."""
        return functional.gelu(gate, approximate="tanh")


class FastGELU(NewGELU):
    """The same by another name."""

    kernel = "gelu_fast"


class QuickGELU(Activation):
    """GELU by the sigmoid."""

    kernel = "gelu_quick"
    is_gated = False

    def native(self, gate: torch.Tensor) -> torch.Tensor:
        """GELU by the sigmoid."""
        return gate * torch.sigmoid(1.702 * gate)


class ReLUSquaredActivation(Activation):
    """The square of ReLU."""

    kernel = "relu_squared"
    is_gated = False

    def native(self, gate: torch.Tensor) -> torch.Tensor:
        """The square of ReLU."""
        return functional.relu(gate).square()


def scaled_quantize(
    x: torch.Tensor, group_shape: Any, quant_dtype: torch.dtype, compute_dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 codes, and the scale of each group of rows and columns."""
    rows, columns = (size if wanted == -1 else wanted for size, wanted in zip(x.shape, group_shape, strict=True))
    groups = x.to(compute_dtype or x.dtype).unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).transpose(1, 2)
    scale = FP8_MAX / groups.abs().amax((2, 3)).clamp(min=1e-12)
    codes = (groups * scale[:, :, None, None]).clamp(-FP8_MAX, FP8_MAX).transpose(1, 2).reshape(x.shape)
    return codes.contiguous().to(quant_dtype), scale.float().reciprocal()


class GroupQuantKernel:
    """A kernel that tests launch, by rows of groups, to compare with: FP8 of groups, by division."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._launch

    @staticmethod
    def _launch(
        x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, group_size: int, *sizes: int, eps: float,
        use_ue8m0: bool, **options: Any,
    ) -> None:  # fmt: skip
        groups = x.float().unflatten(-1, (-1, group_size))
        found = groups.abs().amax(-1).clamp(min=eps) * (1 / FP8_MAX)
        scales.copy_(torch.exp2(torch.ceil(torch.log2(found))) if use_ue8m0 else found)
        codes.copy_((groups / scales[..., None]).clamp(-FP8_MAX, FP8_MAX).to(codes.dtype).flatten(-2))


def reshape_and_cache_flash(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
    slot_mapping: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor, v_scale: torch.Tensor,
) -> None:  # fmt: skip
    """Keys and values into their slots, as FP8 by division."""
    known = slot_mapping >= 0
    slots, page_size = slot_mapping[known], key_cache.shape[1]
    for heads, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        found = heads[: len(known)][known]
        if kv_cache_dtype == "fp8":
            found = (found.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).view(torch.uint8)
        cache[slots // page_size, slots % page_size] = found


def fp8_allclose(a: torch.Tensor, b: torch.Tensor, **tolerances: Any) -> bool:
    """Whether FP8 values lie within tolerances."""
    return torch.allclose(a.double(), b.double(), **tolerances)


def fp8_ulp_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many FP8 values lie between two, in the order of their codes."""
    first, second = (each.contiguous().view(torch.uint8).int() for each in (a, b))
    first, second = (torch.where(code < 128, code, 127 - code) for code in (first, second))
    return (first - second).abs()
