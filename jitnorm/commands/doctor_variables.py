"""The environment variables in effect, and whether their values are valid."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from jitnorm.cache.budget import byte_budget
from jitnorm.cache.lock import wait_bound
from jitnorm.cache.opening import remote_mode, remote_timeout, signature_check, signer
from jitnorm.cache.remote import RemoteTier, without_credentials
from jitnorm.cache.trust import trust_is_limited
from jitnorm.commands.attempt import attempt
from jitnorm.misses import jit_mode
from jitnorm.tiered import is_tiered
from jitnorm.toolchains import TOOLCHAIN_NAMES
from jitnorm.toolchains.process import time_limit
from jitnorm.tracing import tracing_is_wanted
from jitnorm.tuning import tuning_mode

PREFIX = "JITNORM_"


@dataclass(frozen=True)
class Variable:
    """A variable that is set.

    Attributes:
        name: its name.
        value: its value, less what is secret.
        problem: why it is not valid, with the remedy; empty if it is.
    """

    name: str
    value: str
    problem: str


def _backend() -> None:
    value = os.environ["JITNORM_BACKEND"]
    allowed = ("auto", *(name for name in TOOLCHAIN_NAMES if name != "cxx"))
    if value not in allowed:
        raise ValueError(f"JITNORM_BACKEND: is {value!r}; use one of {', '.join(allowed)}")


def _cpu_threads() -> None:
    value = os.environ["JITNORM_CPU_THREADS"]
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"JITNORM_CPU_THREADS: is {value!r}; use a whole number from 1 on")


def _anything() -> None:
    pass


# What reads each of them, and raises if it cannot.
CHECKS: Mapping[str, Callable[[], object]] = {
    "JITNORM_BACKEND": _backend,
    "JITNORM_CACHE_DIR": _anything,  # the state of the cache says whether it can be used
    "JITNORM_CACHE_MAX_BYTES": byte_budget,
    "JITNORM_CACHE_TRUST": trust_is_limited,
    "JITNORM_COMPILE_TIMEOUT": time_limit,
    "JITNORM_CPU_THREADS": _cpu_threads,
    "JITNORM_JIT": jit_mode,
    "JITNORM_LOCK_TIMEOUT": lambda: wait_bound(None),
    "JITNORM_MISS_RECORD": _anything,
    "JITNORM_OTEL": tracing_is_wanted,
    "JITNORM_READONLY_CACHE": _anything,  # each folder is a tier with a state of its own
    "JITNORM_REMOTE_CACHE": lambda: RemoteTier(os.environ["JITNORM_REMOTE_CACHE"]),
    "JITNORM_REMOTE_MODE": remote_mode,
    "JITNORM_REMOTE_TIMEOUT": remote_timeout,
    "JITNORM_SIGNING_KEY": signer,
    "JITNORM_TIERED": is_tiered,
    "JITNORM_TRUSTED_KEYS": signature_check,
    "JITNORM_TUNING": tuning_mode,
}


def variables() -> tuple[Variable, ...]:
    """Those that are set and not empty, by name."""
    names = sorted(name for name, value in os.environ.items() if name.startswith(PREFIX) and value)
    return tuple(_variable(name, os.environ[name]) for name in names)


def _variable(name: str, value: str) -> Variable:
    check = CHECKS.get(name)
    if check is None:
        near = get_close_matches(name, CHECKS, n=1) or [", ".join(CHECKS)]
        return Variable(name, value, f"jitnorm reads no such variable; it reads {near[0]}: set that, or unset this")
    shown = without_credentials(value) if name == "JITNORM_REMOTE_CACHE" else value
    return Variable(name, shown, attempt(check)[1])
