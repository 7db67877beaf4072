"""FlashInfer's recipe for four over six: a configuration, or environment variables."""

from __future__ import annotations

import ctypes
import os
import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torch.compiler import is_compiling

# Of these, the first and the fourth change nothing: arithmetic is always exact.
NVFP4_QUANT_ENV_VARS = (
    "FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH",
    "FLASHINFER_NVFP4_4OVER6",
    "FLASHINFER_NVFP4_4OVER6_ERR_MODE",
    "FLASHINFER_NVFP4_4OVER6_ERR_USE_FAST_MATH",
    "FLASHINFER_NVFP4_4OVER6_E4M3_USE_256",
)

# The default of `nvfp4_4over6`: use the environment.
UNSET: Any = object()
# Every change of `os.environ` is one of C's environment, which says in 0.1 us that a variable is not set, not in 0.6.
_getenv = ctypes.PyDLL(None).getenv
_getenv.argtypes, _getenv.restype = (ctypes.c_char_p,), ctypes.c_void_p


class NVFP44Over6ErrMode(IntEnum):
    """The errors that are summed over a block: absolute ones, or their squares."""

    MAE = 0
    MSE = 1


@dataclass(frozen=True)
class NVFP44Over6Config:
    """A recipe of four over six.

    Args:
        e4m3_max: the largest scale of a block, 448 or 256.
        err_mode: a mode or its name.
        err_use_fast_math: changes nothing; errors are always computed in float32.

    Raises:
        ValueError: a value that is not allowed.

    Example:
        >>> NVFP44Over6Config(err_mode="mse").err_mode.name
        'MSE'
    """

    e4m3_max: int = 448
    err_mode: NVFP44Over6ErrMode | str = NVFP44Over6ErrMode.MAE
    err_use_fast_math: bool = False

    def __post_init__(self) -> None:
        if self.e4m3_max not in (256, 448):
            raise ValueError(f"e4m3_max: is {self.e4m3_max}; E4M3 max must be either 256 or 448")
        mode: Any = self.err_mode
        try:
            found = NVFP44Over6ErrMode[mode.upper()] if isinstance(mode, str) else NVFP44Over6ErrMode(mode)
        except (KeyError, ValueError):
            raise ValueError(f"err_mode: is {mode!r}; the error mode must be MAE or MSE") from None
        object.__setattr__(self, "err_mode", found)

    @property
    def err_mode_name(self) -> str:
        """The name of the mode."""
        return str(getattr(self.err_mode, "name", self.err_mode))


def resolve_nvfp4_4over6(setting: Any = UNSET) -> NVFP44Over6Config | None:
    """The recipe that an argument selects; if it is omitted, that of FLASHINFER_NVFP4_4OVER6 and its siblings.

    Raises:
        TypeError: it is neither a recipe nor None.
    """
    if setting is UNSET:
        if not is_compiling() and _getenv(b"FLASHINFER_NVFP4_4OVER6") is None:
            return None
        return _recipe_of_environment() if _is_set("FLASHINFER_NVFP4_4OVER6") else None
    if setting is not None and not isinstance(setting, NVFP44Over6Config):
        raise TypeError(
            f"nvfp4_4over6: is a {type(setting).__name__}; nvfp4_4over6 must be an NVFP44Over6Config or None"
        )
    return setting


def _recipe_of_environment() -> NVFP44Over6Config:
    recipe = NVFP44Over6Config(
        256 if _is_set("FLASHINFER_NVFP4_4OVER6_E4M3_USE_256") else 448,
        os.environ.get("FLASHINFER_NVFP4_4OVER6_ERR_MODE", "MAE"),
        _is_set("FLASHINFER_NVFP4_4OVER6_ERR_USE_FAST_MATH"),
    )
    warnings.warn(
        f"The FLASHINFER_NVFP4_4OVER6* environment variables are deprecated; pass nvfp4_4over6={recipe!r} instead.",
        FutureWarning,
        stacklevel=4,
    )
    return recipe


def _is_set(variable: str) -> bool:
    return os.environ.get(variable) == "1"


def nvfp4_e4m3_max(nvfp4_4over6_config: NVFP44Over6Config | None = None) -> int:
    """The largest scale of a block: that of a recipe, or 448 without one."""
    return nvfp4_4over6_config.e4m3_max if nvfp4_4over6_config else 448


# A recipe as a number has these bits: bit 0 is always set, bits 2 and 3 are the mode of errors.
_IS_ON, _HAS_256, _MODE, _HAS_FAST_MATH, _BITS = 1, 2, 2, 16, 5
_OF_ENVIRONMENT = -1


def nvfp4_4over6_code(config: NVFP44Over6Config | None) -> int:
    """A recipe as a number; 0 without one."""
    if config is None:
        return 0
    options = _HAS_256 * (config.e4m3_max == 256) + _HAS_FAST_MATH * bool(config.err_use_fast_math)
    return _IS_ON + options + (int(config.err_mode) << _MODE)


def nvfp4_4over6_from_code(code: int) -> Any:
    """The recipe of `nvfp4_4over6_code`; for -1 the default of `nvfp4_4over6`, which uses the environment.

    Raises:
        ValueError: no recipe has this number.
    """
    if code == _OF_ENVIRONMENT:
        return UNSET
    mode = code >> _MODE & 3
    if not 0 <= code < 1 << _BITS or (code & _IS_ON and mode not in tuple(NVFP44Over6ErrMode)):
        raise ValueError(f"code: is {code}; Unsupported NVFP4 4over6 code, expected one of nvfp4_4over6_code, or -1")
    if not code & _IS_ON:
        return None
    return NVFP44Over6Config(256 if code & _HAS_256 else 448, NVFP44Over6ErrMode(mode), bool(code & _HAS_FAST_MATH))
