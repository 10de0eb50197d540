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
    if isinstance(rng, np.random.Generator):
        return rng
    try:
        seed = operator.index(rng)
    except TypeError:  # NumPy would take None, but nobody could repeat the run
        raise TypeError(
            f"rng is {rng!r}; pass a numpy.random.Generator or an integer seed"
        ) from None
    return np.random.default_rng(seed)


def integer_at_least(lowest: int, name: str, value: int) -> int:
    """Return `value` as an int that is at least `lowest`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; pass an integer") from None
    if number < lowest:
        raise ValueError(f"{name} = {number}; pass {name} >= {lowest}")
    return number


def finite(name: str, value: float) -> float:
    """Return `value` as a finite float."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} = {number}; pass a finite number")
    return number


def positive(name: str, value: float) -> float:
    """Return `value` as a finite float > 0."""
    number = finite(name, value)
    if not number > 0:
        raise ValueError(f"{name} = {number}; pass {name} > 0")
    return number


def real_at_least(lowest: float, name: str, value: float) -> float:
    """Return `value` as a finite float >= `lowest`."""
    number = finite(name, value)
    if not number >= lowest:
        raise ValueError(f"{name} = {number}; pass {name} >= {lowest:g}")
    return number
