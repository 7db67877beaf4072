"""Identifies this process, and tells whether another one is alive."""

from __future__ import annotations

import os
from functools import lru_cache


def host_name() -> str:
    """The name of this host, for display."""
    return os.uname().nodename


@lru_cache(maxsize=1)
def host_token() -> str:
    """A name without dots for the set of processes whose ids can be compared with this one's.

    Containers may share a host name and a cache folder but not their process ids, so the process
    namespace is a part of the name, unless /proc is not mounted.
    """
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in host_name())
    return f"{name}-{namespace}"


def is_dead(pid: int) -> bool:
    """Whether no process of this host and namespace has the id ``pid``."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
