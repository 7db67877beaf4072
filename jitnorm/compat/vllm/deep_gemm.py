"""Whether vLLM would multiply with DeepGEMM, whose scales are powers of two by default."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch

# Both are on by default.
_VARIABLES = ("VLLM_USE_DEEP_GEMM", "VLLM_USE_DEEP_GEMM_E8M0")
_ARCHITECTURES = (9, 10, 12)  # Hopper and Blackwell, by the first number of their capability


@cache
def takes_powers_of_two(device: torch.device) -> bool:
    """Whether scales are powers of two there by default: on GPUs from Hopper on, if ``deep_gemm`` is installed."""
    if device.type != "cuda" or find_spec("deep_gemm") is None:
        return False
    is_supported = torch.cuda.get_device_capability(device)[0] in _ARCHITECTURES
    return is_supported and all(bool(int(os.environ.get(name, "1"))) for name in _VARIABLES)
