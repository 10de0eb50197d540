"""`Method`: the systems that it fits, its formats, its price, and its preparation.

A price is a formula in a few rates of a machine: seconds that are expected before any work is done.
The formula belongs to the method; the rates are measured (`roundwise.costs`). A method that has a
price is chosen by the default policy as soon as that price is the lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from roundwise.formats import FloatFormat


@dataclass(frozen=True)
class Shape:
    """The sizes that prices depend on.

    Parameters
    ----------
    n : int
        Unknowns.
    entries : int
        Of A that are stored: n^2 if it is dense.
    columns : int
        Right-hand sides.
    filled, flops, nd_flops, row_squares : float
        For a sparse A: entries of L in the order of approximate minimum degree, operations of the
        factorization in that order and in that of nested dissection, and the sum of the squares of
        the rows' entries.
    diagonals : int
        For a dense A: the diagonals between the outermost two that have a nonzero entry, if they
        were looked for; else 0.
    stored, nd_stored : float
        For a sparse A: numbers of L as our engines store it, with zeros that complete its dense
        panels, in both orders.

    Examples
    --------
    >>> from roundwise.costs import Shape
    >>> Shape(100, 100**2).columns
    1
    """

    n: int
    entries: int  # stored ones of A: n^2 if it is dense
    columns: int = 1  # right-hand sides
    filled: float = 0.0  # for a sparse A: entries of Cholesky's L in AMD's order
    flops: float = 0.0  # of this factorization
    nd_flops: float = 0.0  # in the order of nested dissection; 0 if nobody counted
    row_squares: float = 0.0  # sum of the squares of the rows' entries
    diagonals: int = 0  # of a dense band; 0 if nobody looked
    stored: float = 0.0  # numbers in the panels of L in AMD's order: `filled`, and some zeros
    nd_stored: float = 0.0  # in the order of nested dissection


@dataclass(frozen=True, slots=True)
class Work:
    """Counted work by one method in one format.

    Parameters
    ----------
    runs, steps, iterations : int
        Factorizations, corrections, and GMRES iterations.

    Examples
    --------
    >>> from roundwise.costs import Work
    >>> Work(runs=1, steps=2)
    Work(runs=1, steps=2, iterations=0)
    """

    runs: int = 0
    steps: int = 0
    iterations: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.runs + other.runs, self.steps + other.steps, self.iterations + other.iterations
        )


class Seconds(NamedTuple):
    """Seconds of the parts of a solve, by a method in a format.

    ``runs factor + (runs + steps) step + columns iterations iteration`` is the price of `Work`,
    with `conversion` added to each factorization if there are iterations.
    """

    factor: float  # analysis and factorization
    conversion: float = 0.0  # of the factors to FP64, for GMRES
    step: float = 0.0  # substitution and residual, all columns
    iteration: float = 0.0  # the factors and A applied to one vector in FP64

    def of(self, work: Work, columns: int) -> float:
        """The seconds of this work."""
        factor, conversion, step, iteration = self
        if work.iterations:
            factor += conversion
        steps = work.runs + work.steps
        return work.runs * factor + steps * step + columns * work.iterations * iteration


Rates = Any
"""The rates of a processor that formulas are written in: `costs.prices.Prices` has them."""

DeviceRates = Any
"""Rates of a GPU: `costs.prices.DevicePrices`."""

Price = Callable[[Rates, Shape, str], Seconds | None]
"""The seconds of a shape in a format (by name); None if the rates do not tell."""

DevicePrice = Callable[[DeviceRates, Shape, str], Seconds | None]

Memory = Callable[[Shape, str], float]
"""Bytes that a solve in a format (by name) takes at most beside A, of real numbers; infinite if the
shape does not tell."""

Preparation = Callable[[Any, Any], Any]
"""Makes of a backend and A an `Analysis`, which factorizes A in a format; for least squares, of the
factor stage and the tall one of A and A' the `AugmentedFactors`."""


@dataclass(frozen=True)
class Method:
    """A way to factorize; each failure leads to the next format, then to FP64 by another method.

    `price` is that of a processor, `device_price` that of a GPU. Without either the default policy
    does not choose the method, but a policy that was trained with it may.
    """

    name: str
    sparse: bool  # whether it is for sparse matrices
    formats: tuple[FloatFormat, ...]  # that it is tried in, lowest first
    then: tuple[str, ...] = ()  # the first of these that fits A is the next method
    chosen: bool = True  # by policies; if not, it is a last resort
    needs: tuple[str, ...] = ()  # the features that a matrix must have
    counts: tuple[str, ...] = ()  # what a profile must know, for the price to hold
    price: Price | None = None
    device_price: DevicePrice | None = None
    memory: Memory | None = None  # None: nobody knows
    prepare: Preparation | None = None  # None: `Backend.analyse` knows the method by its name

    def suits(self, known: Mapping[str, float]) -> bool:
        """Whether a matrix is known to have the features that it must have."""
        return all(known.get(name) for name in self.needs)

    def fits(self, features: Mapping[str, float]) -> bool:
        """Whether a matrix with these features can be factorized this way."""
        return all(features[name] for name in self.needs)
