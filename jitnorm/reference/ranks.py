"""The sum over the ranks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitnorm.reference.checks import as_float32, require_shape
from jitnorm.reference.elements import round_to
from jitnorm.reference.float32 import canonical


@np.errstate(all="ignore")
def rank_sum_f32(shares: Sequence[NDArray[Any]], *, round_sum: bool = True) -> NDArray[np.float32]:
    """Return ``((+0 + shares[0]) + shares[1]) + ...``, each addition rounded.

    Args:
        shares: (M, H) float16, bfloat16 or float32 of each rank, in their order.
        round_sum: Whether the result is rounded to the dtype of the shares, with -0 becoming +0.

    Returns:
        (M, H) float32.

    Raises:
        TypeError: An array has another dtype.
        ValueError: The sequence is empty, or an array has another shape.

    Example:
        >>> rank_sum_f32([np.float32([[-0.0, 1e8]]), np.float32([[-0.0, 1]]), np.float32([[-0.0, -1e8]])]).tolist()
        [[0.0, 0.0]]
    """
    if not shares:
        raise ValueError("shares is empty; pass one for each rank")
    total = np.zeros_like(as_float32(shares[0], "shares[0]", ndim=2))
    for number, share in enumerate(shares):
        require_shape(share, total.shape, f"shares[{number}]")
        total = total + as_float32(share, f"shares[{number}]")
    if round_sum:
        total = round_to(total, shares[0].dtype).astype(np.float32) + np.float32(0)
    return canonical(total)
