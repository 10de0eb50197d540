"""Direct or iterative: decided for a sparse system before its symbolic analysis is paid for.

1. Shape and a look: two searches through the graph tell about how wide it is, and so what the
   direct way takes at least, analysis included. Where multigrid (for definite systems) is not
   expected to take less, or where a vain attempt, by incomplete LU if A is unsymmetric, would take
   too large a part of that, the direct way is planned as ever.
2. The attempt: the preconditioner, then iterations on the system itself. From the tenth on their
   contraction forecasts how many there will be, and prices tell what these take. As long as that
   is less than the least of the direct way, nothing else is computed.
3. Otherwise the direct way is planned, which counts its work. If the forecast exceeds its price,
   the attempt is stopped, and the direct way taken.

Forecasts count iterations, not measured seconds: the same call makes the same choice, and has the
same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.engines.orderings import ND_FROM
from roundwise.costs.prices import Prices
from roundwise.formats import FP32, FP64
from roundwise.methods import METHODS, Method, Shape, Work
from roundwise.methods.iterative import (
    MULTIGRID,
    Look,
    counting_seconds,
    iteration_seconds,
    least_shape,
)
from roundwise.solver.memory_forecast import InsufficientMemory
from roundwise.solver.system import System

if TYPE_CHECKING:
    from roundwise.solver.decide import Plan

FORMAT = FP32
"""Of storage: it takes less time than FP64, and as many iterations."""

AT_HOME = 0.01
"""Positive entries off the diagonal, as a share of all by size, that an M-matrix may nearly have:
multigrid converges there whatever else is true. A taste."""

RISKED = 0.1
"""What an attempt may take of the least of the direct way where nobody knows whether multigrid
converges. A taste: a solve that lasts a tenth longer annoys nobody."""

TRIAL = 10
"""Iterations before the first forecast (`engines.iterative.CHECK_AFTER`)."""


@dataclass(eq=False)
class DirectWay:
    """The way that an iterative attempt is compared with; planned when it is first asked for."""

    least: float  # seconds that it takes at least
    each: float  # seconds of an iteration
    make: Callable[[], Plan]

    @cached_property
    def plan(self) -> Plan:
        return self.make()

    @cached_property
    def seconds(self) -> float:
        """What the direct way takes; infinite if it does not fit into memory."""
        try:
            return self.plan.seconds
        except InsufficientMemory:
            return math.inf

    def grants(self, iterations: float) -> bool:
        """Whether so many iterations take less time than the direct way.

        They are those of all solves with the same A: as soon as these have taken as long as factors
        would have, factors are made.
        """
        seconds = iterations * self.each
        return seconds <= self.least or seconds <= self.seconds


def rival_of(
    system: System,
    prices: Prices,
    known: Mapping[str, float],
    others: Callable[[Shape], float],
    make: Callable[[], Plan],
) -> tuple[Method, DirectWay, str] | None:
    """The method to try first, the direct way to compare it with, and why; None to go that way.

    `others` prices the methods that fit all systems; `make` plans the direct way.
    """
    A, columns = system.A, max(1, system.b.shape[1])
    definite = bool(known["looks_positive_definite"])
    method = MULTIGRID if definite else METHODS["ilu/0"]
    if not (method.fits(known) and prices.prices(method.name, FORMAT.name)):
        return None
    if known["symmetric"] > definite or A.indices.dtype != "int32":
        return None
    shape, fmt = Shape(system.n, A.nnz, columns), FORMAT.name
    attempt = prices.seconds(shape, method.name, fmt, Work(1, steps=1))
    if attempt > highest(prices, shape):
        return None
    reached, levels, width, positive = _kernels.iterative_look(A.indptr, A.indices, A.data)
    if 2 * reached < system.n:
        return None
    counts = least_shape(shape, Look(reached, levels, width))
    least = counting_seconds(counts, ND_FROM) + direct_seconds(prices, counts, definite)
    least = min(least, others(counts))
    setup = prices.seconds(shape, method.name, fmt, Work(1))
    suited = definite and positive <= AT_HOME and attempt < least
    if not suited and not setup < RISKED * least:
        return None
    each = iteration_seconds(prices, shape, method.name, fmt)
    reason = (
        f"Chose {method.name}: the graph of A is {width} wide, so that a factorization is "
        f"expected to take at least {least:.2g} s, and {2 * TRIAL} iterations about "
        f"{attempt:.2g} s."
    )
    return method, DirectWay(least, each, make), reason


def direct_seconds(prices: Prices, counts: Shape, definite: bool) -> float:
    """Cholesky or LU in FP32 with a correction, in the better order."""
    name = "cholesky/nd" if definite else "lu/nd"
    return prices.seconds(counts, name, FP32.name, Work(1, steps=1))


def highest(prices: Prices, shape: Shape) -> float:
    """What the direct way may take if A is as wide as can be: a dense matrix."""
    n = float(shape.n)
    dense = Shape(shape.n, shape.entries, shape.columns, n * n / 2, n**3 / 3, n**3 / 3, n**3)
    return prices.seconds(dense, "cholesky/nd", FP64.name, Work(1))
