"""Checks of the arguments that the generators share; each error names the remedy."""

from __future__ import annotations

import math
import operator
from typing import TypeAlias

import numpy as np

RandomSource: TypeAlias = np.random.Generator | int
"""A generator, or a seed for one; global random state is never used."""


def as_generator(rng: RandomSource) -> np.random.Generator:
    """Return `rng` itself, or ``numpy.random.default_rng(rng)`` for a seed."""
    # NumPy would take None, too, but nobody could repeat the run.
    if not isinstance(rng, np.random.Generator | int | np.integer):
        raise TypeError(f"rng is {rng!r}; pass a numpy.random.Generator or an integer seed")
    return np.random.default_rng(rng)


def integer_at_least(lowest: int, name: str, value: int) -> int:
    """Return `value` as an int that is at least `lowest`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; pass an integer") from None
    if number < lowest:
        raise ValueError(f"{name} = {number}; pass {name} >= {lowest}")
    return number


def finite(name: str, value: float, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """Return `value` as a finite float that is at least `least` and greater than `above`."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} = {number}; pass a finite number")
    if number < least:
        raise ValueError(f"{name} = {number}; pass {name} >= {least:g}")
    if number <= above:
        raise ValueError(f"{name} = {number}; pass {name} > {above:g}")
    return number
