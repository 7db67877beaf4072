"""NVFP4 as in vLLM: outputs of its shapes, and the operator that fills them."""

from __future__ import annotations

import torch

from jitnorm.compat.arguments import as_bytes, spec_of
from jitnorm.kernels.numerics import round_up
from jitnorm.ops.pairs import quantize_pair

_BLOCK_SIZE = 16
_LINEAR, _SWIZZLED = (spec_of("e2m1", _BLOCK_SIZE, "e4m3", layout) for layout in ("linear", "128x4"))


def create_fp4_scale_tensor(m: int, n: int, device: torch.device, is_sf_swizzled_layout: bool) -> torch.Tensor:
    """Uninitialized scales for an (m, n) matrix: uint8; or swizzled int32, padded, four per element."""
    if not is_sf_swizzled_layout:
        return torch.empty(m, n // _BLOCK_SIZE, dtype=torch.uint8, device=device)
    return torch.empty(round_up(m, 128), round_up(n // _BLOCK_SIZE, 4) // 4, dtype=torch.int32, device=device)


def create_fp4_output_tensors(
    m: int, n: int, device: torch.device, is_sf_swizzled_layout: bool, padded_n: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Uninitialized codes, two per byte, and scales for an (m, n) matrix; `padded_n` replaces n."""
    columns = n if padded_n is None else padded_n
    codes = torch.empty(m, columns // 2, dtype=torch.uint8, device=device)
    return codes, create_fp4_scale_tensor(m, columns, device, is_sf_swizzled_layout)


class _ScaledFp4Quant:
    """NVFP4 with a given global scale, with the overloads of the operator."""

    def __call__(
        self, input: torch.Tensor, input_scale: torch.Tensor, is_sf_swizzled_layout: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales, as `create_fp4_output_tensors` makes them."""
        columns = input.shape[-1]
        made = create_fp4_output_tensors(input.numel() // columns, columns, input.device, is_sf_swizzled_layout)
        self.out(input, input_scale, is_sf_swizzled_layout, output=made[0], output_scale=made[1])
        return made

    def out(
        self,
        input: torch.Tensor,
        input_scale: torch.Tensor,
        is_sf_swizzled_layout: bool,
        *,
        output: torch.Tensor,
        output_scale: torch.Tensor,
    ) -> None:
        """The same, into the caller's tensors; columns beyond the input's become zero."""
        matrix = input if input.ndim == 2 else input.reshape(-1, input.shape[-1])
        padding = 2 * output.shape[-1] - matrix.shape[1]
        if padding:
            matrix = torch.nn.functional.pad(matrix, (0, padding))
        spec = _SWIZZLED if is_sf_swizzled_layout else _LINEAR
        quantize_pair(matrix, spec, output, as_bytes(output_scale), global_scale=input_scale)


scaled_fp4_quant = _ScaledFp4Quant()
