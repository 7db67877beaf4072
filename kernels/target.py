"""Target: the hardware that a kernel is built for, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass

from .spelling import did_you_mean

# Without sm_87 and sm_88: cubins for other 8.x targets are not guaranteed to run there.
_CAPABILITY_OF = {
    "sm_80": (8, 0),
    "sm_86": (8, 6),
    "sm_89": (8, 9),
    "sm_90a": (9, 0),
    "sm_100a": (10, 0),
    "sm_103a": (10, 3),
    "sm_110a": (11, 0),
    "sm_120a": (12, 0),
    "sm_121a": (12, 1),
}
# Families: kernels for the capability run on devices of the same major version that are not older.
_FAMILY_CAPABILITY_OF = {
    "sm_100f": (10, 0),
    "sm_120f": (12, 0),
}
# For the largest GPUs of each target: the number of multiprocessors, and the shared memory of each.
_MULTIPROCESSORS = {
    "sm_80": 108,
    "sm_86": 84,
    "sm_89": 144,
    "sm_90a": 132,
    "sm_110a": 20,
    "sm_120a": 188,
    "sm_121a": 48,
    "sm_120f": 188,
}
_MULTIPROCESSORS_ELSEWHERE = 148
_SHARED_BYTES = dict.fromkeys(("sm_86", "sm_89", "sm_120a", "sm_121a", "sm_120f"), 100 << 10) | {"sm_80": 164 << 10}
_SHARED_BYTES_ELSEWHERE = 228 << 10
_SHARED_BYTES_FOR_SUMS = 12 << 10
TARGET_NAMES = ("cpu", *_CAPABILITY_OF, *_FAMILY_CAPABILITY_OF)


@dataclass(frozen=True, slots=True)
class Target:
    """The hardware that code is built for: ``cpu``, one CUDA architecture, such as ``sm_90a``, or a family of them.

    Its text form is its name: ``str(Target("sm_90a")) == "sm_90a"``.

    Args:
        name: one of `TARGET_NAMES`.

    Raises:
        ValueError: the name is not a known target.

    Example:
        >>> Target("sm_100a").has_native_e2m1, Target("sm_90a").has_native_e2m1
        (True, False)
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in TARGET_NAMES:
            raise ValueError(
                f"target: {self.name!r} is not known; use one of {', '.join(TARGET_NAMES)}"
                f"{did_you_mean(self.name, TARGET_NAMES)}"
            )

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of_capability(cls, major: int, minor: int) -> Target:
        """The target made for CUDA devices of compute capability ``major.minor``; ValueError if there is none."""
        for name, capability in _CAPABILITY_OF.items():
            if capability == (major, minor):
                return cls(name)
        supported = ", ".join(f"{a}.{b}" for a, b in _CAPABILITY_OF.values())
        raise ValueError(f"device: compute capability {major}.{minor} is not supported; supported are {supported}")

    @property
    def is_cpu(self) -> bool:
        """Whether this is the CPU target."""
        return self.name == "cpu"

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability of a CUDA target, the oldest of a family; (0, 0) for the CPU."""
        return _CAPABILITY_OF.get(self.name) or _FAMILY_CAPABILITY_OF.get(self.name, (0, 0))

    @property
    def is_family(self) -> bool:
        """Whether its kernels run on devices of several compute capabilities."""
        return self.name in _FAMILY_CAPABILITY_OF

    @property
    def family(self) -> Target | None:
        """The family of this target's devices, such as ``sm_100f`` for ``sm_103a``; None if there is none."""
        if not self.is_family:
            for name, (major, minor) in _FAMILY_CAPABILITY_OF.items():
                if self.capability[0] == major and self.capability[1] >= minor:
                    return Target(name)
        return None

    @property
    def multiprocessors(self) -> int:
        """Multiprocessors of the largest GPUs of a CUDA target."""
        return _MULTIPROCESSORS.get(self.name, _MULTIPROCESSORS_ELSEWHERE)

    @property
    def all_shared_bytes(self) -> int:
        """Shared memory of a multiprocessor."""
        return _SHARED_BYTES.get(self.name, _SHARED_BYTES_ELSEWHERE)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a multiprocessor that its blocks may use, leaving some for their sums."""
        return self.all_shared_bytes - _SHARED_BYTES_FOR_SUMS

    @property
    def has_native_e2m1(self) -> bool:
        """Whether cvt to E2M1 is an instruction (from Blackwell on, in targets of an architecture or a family)."""
        return self.capability >= (10, 0)

    @property
    def has_native_e4m3(self) -> bool:
        """Whether cvt to E4M3 is an instruction (from Ada on)."""
        return self.capability >= (8, 9)

    @property
    def has_max_of_three(self) -> bool:
        """Whether an instruction finds the largest of three floats (on Blackwell's data center GPUs)."""
        return (10, 0) <= self.capability < (12, 0)

    @property
    def has_packed_floats(self) -> bool:
        """Whether an instruction adds or multiplies pairs of floats (on the B200 and the B300)."""
        return self.capability[0] == 10

    @property
    def has_mixed_precision(self) -> bool:
        """Whether an instruction adds a product of 16-bit floats to a float (from Blackwell on)."""
        return self.capability >= (10, 0)

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can form clusters that read each other's shared memory (from Hopper on)."""
        return self.capability >= (9, 0)

    @property
    def has_pdl(self) -> bool:
        """Whether programmatic dependent launch exists (from Hopper on)."""
        return self.capability >= (9, 0)
