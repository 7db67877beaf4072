"""Rules on the fields of a KernelConfig for hyper-connections (mHC) before a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import KernelConfig

MAPPED = ("sinkhorn", "splits", "prenorm")
MAX_SINKHORN = 100
MAX_SPLITS = 64


def check_mapping(config: KernelConfig) -> None:
    """Raise ValueError if one of `MAPPED` has a value that is not allowed, or not allowed with the others."""
    for name, least, most in (("sinkhorn", 0, MAX_SINKHORN), ("splits", 1, MAX_SPLITS)):
        value = getattr(config, name)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name}: is {value!r}; {least} to {most} is allowed")
    if not config.sinkhorn:
        if config.splits > 1 or config.prenorm:
            raise ValueError(f"splits, prenorm: are {config.splits} and {config.prenorm}, which need sinkhorn")
        return
    others = ("quant", "amax_parts", "batched", "experts", "gathers")
    if not config.streams or any(getattr(config, name) for name in others):
        raise ValueError(f"sinkhorn: is {config.sinkhorn}, which takes streams, and none of {', '.join(others)}")
    if config.prenorm and config.splits > 1:
        raise ValueError(f"splits: is {config.splits}, but with prenorm, projections are already summed; use 1")
