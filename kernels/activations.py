"""The activations: those with just a name, and those whose text contains the caller's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Real

from .numerics import to_float32

# For values, and only for gates; texts have numbers in place of the upper-case words.
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu2", "swish:ALPHA", "fatrelu:THRESHOLD")
GATES = (*ACTIVATIONS, "swigluoai", "swiglu:LIMIT:ALPHA:BETA")
# For gates in a separate tensor.
NORM_GATES = (*ACTIVATIONS, "sigmoid")
_LARGEST = 2.0**127
_LOG2_E = Fraction("1.44269504088896340735992468100189214")
# The allowed numbers, by the upper-case words.
_RANGES = {
    "ALPHA": (0.01, 100.0),
    "LIMIT": (2.0**-126, _LARGEST),
    "BETA": (-_LARGEST, _LARGEST),
    "THRESHOLD": (-_LARGEST, _LARGEST),
}
_WITH_NUMBERS = {form.partition(":")[0]: form.split(":")[1:] for form in GATES if ":" in form}
# The texts of activations that have a name.
_NAMED = {"swish:1": "silu", "swiglu:7:1.70200002:1": "swigluoai"}


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of an activation, with defaults for those that it lacks; all rounded to float32.

    Args:
        alpha: factor of a value within the sigmoid.
        limit: the maximum of gates, and of values in magnitude.
        beta: what is added to values.
        threshold: above it, values are unchanged.
    """

    alpha: float = 1.0
    limit: float = _LARGEST
    beta: float = 0.0
    threshold: float = 0.0

    @property
    def exponents(self) -> tuple[float, float]:
        """The quotient of alpha and ln 2, in two parts."""
        product = Fraction(self.alpha) * _LOG2_E
        high = to_float32(float(product))
        return high, to_float32(float(product - Fraction(high)))

    @property
    def bound(self) -> float:
        """The magnitude beyond which only the sign of a negative value's activation is left."""
        return to_float32(125 / self.exponents[0])


def numbers_of(activation: str) -> Numbers | None:
    """The numbers in the text of an activation; None if it has none."""
    name, *texts = activation.split(":")
    words = _WITH_NUMBERS.get(name)
    if not texts or words is None:
        return None
    return Numbers(**{word.lower(): to_float32(float(text)) for word, text in zip(words, texts, strict=True)})


def with_numbers(name: str, **numbers: float) -> str:
    """The text of an activation with these numbers, in their order.

    Raises:
        ValueError: a number is out of its range.
        TypeError: a value is not a number.
    """
    try:
        return _with_numbers(name, **numbers)
    except TypeError:  # also for what cannot be cached
        return _with_numbers.__wrapped__(name, **numbers)


# Cached because every call of an activation needs it: 1.3 us. Types matter, because True equals 1 but is rejected.
@lru_cache(maxsize=256, typed=True)
def _with_numbers(name: str, **numbers: float) -> str:
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Real):
            raise TypeError(f"{key}: is a {type(number).__name__}; expected a number")
        least, largest = _RANGES[key.upper()]
        if not least <= number <= largest:
            raise ValueError(f"{key}: is {number!r}; allowed are numbers from {least:g} to {largest:g}")
    return ":".join((name, *map(repr, map(float, numbers.values()))))


def canonical(activation: str) -> str:
    """The single text for equal activations; other texts are returned unchanged.

    Example:
        >>> canonical("swish:1.702"), canonical("swiglu:7.0:1.702:1")
        ('swish:1.70200002', 'swigluoai')
    """
    if not is_activation(activation, GATES) or ":" not in activation:
        return activation
    name, *texts = activation.split(":")
    text = ":".join((name, *(f"{to_float32(float(text)):.9g}" for text in texts)))
    return _NAMED.get(text, text)


def is_activation(activation: object, forms: Sequence[str]) -> bool:
    """Whether a value is the text of an activation in one of some forms, such as `GATES`."""
    if not isinstance(activation, str):
        return False
    name, *texts = activation.split(":")
    form = next((form for form in forms if form.partition(":")[0] == name), "")
    words = form.split(":")[1:]
    return bool(form) and len(texts) == len(words) and all(map(_is_in_range, words, texts))


def _is_in_range(word: str, text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    least, largest = _RANGES[word]
    return least <= number <= largest
