"""Plugin of vLLM, which finds it by the entry point ``vllm.general_plugins`` and calls `register` in every process.

Nothing changes until a configuration asks for it, as docs/vllm.md shows.
"""

from __future__ import annotations

from jitnorm.integrations.vllm import fused, ir


def register() -> None:
    """Register jitnorm with vLLM's IR, and the operators of `fused` that the environment names."""
    ir.register()
    fused.register()
