"""Preconditioned Krylov methods, and what they are compared with before anything is counted.

Symbolic analysis of a large system takes longer than a preconditioner does, and often longer than
the whole iteration. So the direct way is bounded from below by a look: the width of the graph of A,
which is about its smallest separator.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from roundwise.formats import BF16, FP16, FP32, FP64
from roundwise.methods.contract import Memory, Method, Price, Rates, Seconds, Shape
from roundwise.methods.sparse import DEFINITE, SAFE, amounts

TYPICAL = 10
"""Iterations of what counts as a step: half of those that a run to the gate takes where multigrid
is at home. The trial tells how many they really are."""


ITERATION = 5e-5
"""Seconds of an iteration's calls. A price: see `COUNTING`."""


def iteration_seconds(rates: Rates, shape: Shape, name: str, fmt: str) -> float:
    """Seconds of one iteration with all columns."""
    return ITERATION + float(rates.sparse.solve[name][fmt]) * shape.entries * shape.columns


def price_of(name: str) -> Price:
    """Making the preconditioner is linear in `AMOUNTS`; a step is `TYPICAL` iterations."""

    def price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
        known, profile = rates.sparse.factor.get(name, {}), rates.profile
        if fmt not in known:
            return None
        pairs = zip(known[fmt], amounts(shape, name), strict=True)
        factor = sum(rate * amount for rate, amount in pairs) + profile.run_overhead
        each = iteration_seconds(rates, shape, name, fmt)
        step = TYPICAL * each + profile.outer_overhead
        return Seconds(factor, 0.0, step, TYPICAL * each + profile.inner_overhead)

    return price


BYTES = {"sa": 85.0, "0": 60.0, "1": 95.0, "2": 150.0}
"""Bytes for each entry of A at the peak, while the preconditioner is made: upper bounds, in any
format of storage, of Laplacians in one to three dimensions (``tests/methods/test_memory.py``)."""

VECTORS = 8
"""Of iterations, in FP64."""


def memory_of(name: str) -> Memory:
    """The entries' share is that of `BYTES`, by levels of fill."""
    each = BYTES[name.partition("/")[2]]

    def memory(shape: Shape, fmt: str) -> float:
        vectors = VECTORS * FP64.storage_bytes * float(shape.n) * shape.columns
        return each * shape.entries + vectors

    return memory


STORED, STRONG = (BF16, FP16, FP32, FP64), ("strong_diagonal",)

MULTIGRID = Method(
    *("multigrid/sa", True, STORED, ("cholesky/amd",)),
    needs=DEFINITE,
    price=price_of("multigrid/sa"),
    memory=memory_of("multigrid/sa"),
)


def incomplete(name: str, then: tuple[str, ...], needs: tuple[str, ...]) -> Method:
    """One that a caller may ask for; only ``ilu/0`` has a price, and is chosen by policies."""
    price = price_of(name) if name == "ilu/0" else None
    chosen, memory = price is not None, memory_of(name)
    return Method(name, True, STORED, then, chosen, needs, price=price, memory=memory)


INCOMPLETE = (
    *(incomplete(f"ic/{levels}", ("cholesky/amd",), DEFINITE) for levels in range(3)),
    *(incomplete(f"ilu/{levels}", ("lu/amd", SAFE), STRONG) for levels in range(3)),
)
"""Incomplete factorizations with levels of fill."""

ITERATIVE = (MULTIGRID, *INCOMPLETE)


class Look(NamedTuple):
    """What two breadth-first searches tell of the graph of A."""

    reached: int  # unknowns that are connected with the first one
    levels: int
    width: int  # of the level behind which half of them lie


FLOPS_OF_WIDTH = 10.0
"""Of a factorization in a good order, for each width cubed: of 5-point squares 10 to 11.8, of
7-point cubes 11 to 14 (counted by AMD and nested dissection, n = 27 000 to 360 000; the width of a
cube's diagonal cut is 3/4 of its face). A fact of these families, and a guess of others."""

COUNTING, DISSECTING = 3e-7, 2.5e-6
"""Seconds per entry of A of counting in AMD's order, and of nested dissection, which is tried
from `orderings.ND_FROM` flops on. Prices: ``python benchmarks/bench_iterative.py --prices`` (two
cores of a Zen 5)."""


def least_shape(shape: Shape, look: Look) -> Shape:
    """The counts that a factorization is expected to have at least."""
    width = float(look.width)
    flops = FLOPS_OF_WIDTH * width**3
    filled = shape.entries / 2 + width**2 * math.log2(max(shape.n, 2)) / 2
    squares = float(shape.entries) ** 2 / shape.n
    return Shape(shape.n, shape.entries, shape.columns, filled, flops, flops, squares)


def counting_seconds(shape: Shape, dissects_from: float) -> float:
    """What it takes to count, for a system with the flops of this shape."""
    dissects = shape.flops >= dissects_from
    return shape.entries * (COUNTING + (DISSECTING if dissects else 0.0))
