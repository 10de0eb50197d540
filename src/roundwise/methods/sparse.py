"""The sparse methods, and their price: linear in what symbolic analysis counts.

Analysis and factorization by a method in a format take a nonnegative combination of `AMOUNTS`,
which are known before: entries and flops are those of Cholesky on the pattern of A + A' in the
order of approximate minimum degree. Other orders fill in more or less; the fitted rates include the
mean difference. Our own engines begin with an order that counting has found already, so their rates
leave the ordering out. Solves are priced per entry of L. A method without rates has no price.
"""

from __future__ import annotations

import math

from roundwise.formats import FP32, FP64, FloatFormat, get_format
from roundwise.methods.contract import Memory, Method, Price, Rates, Seconds, Shape

SAFE = "superlu/colamd"
"""The method of last resort: partial pivoting, in an order that limits fill whatever the pivots."""

DEFINITE, SYMMETRIC = ("looks_positive_definite",), ("symmetric",)
STATIC = ("static_pivots",)

AMOUNTS = ("a matrix", "n", "entries of A", "entries of L", "flops", "row squares")
FLOPS = AMOUNTS.index("flops")

SAME_PRICE = {"cholesky/nd": "cholesky/amd", "lu/nd": "lu/amd"}
"""Once its flops are counted, the order is found: the rest costs what it costs in AMD's order."""


def amounts(shape: Shape, method: str) -> tuple[float, ...]:
    """The amounts that the seconds of a sparse factorization are linear in (see `AMOUNTS`)."""
    flops = shape.nd_flops if method.endswith("/nd") and shape.nd_flops else shape.flops
    return 1.0, shape.n, shape.entries, shape.filled, flops, shape.row_squares


def price_of(name: str) -> Price:
    """The price of a method by the rates under its name."""

    def price(rates: Rates, shape: Shape, fmt: str) -> Seconds | None:
        known, profile = rates.sparse, rates.profile
        if fmt not in known.factor.get(name, {}):
            return None
        pairs = zip(known.factor[name][fmt], amounts(shape, name), strict=True)
        factor = sum(rate * amount for rate, amount in pairs)
        product = known.matvec * shape.entries
        conversion = 0.0 if fmt == FP64.name else known.conversion * shape.filled
        solve = known.solve[name]
        step = shape.columns * (solve[fmt] * shape.filled + product) + profile.outer_overhead
        iteration = solve[FP64.name] * shape.filled + product + profile.inner_overhead
        return Seconds(factor + profile.run_overhead, conversion, step, iteration)

    return price


ANALYSED = 20.0
"""Bytes for each entry of A that the pattern, the order and a copy of A take: a fact of
``tests/methods/test_memory.py``."""

OWN = {"cholesky": 1.0, "ldl": 1.0, "lu": 2.0}
"""Factors that our engines store, in copies of L."""

OPAQUE = {"superlu/colamd": 5.6, "superlu/mmd": 4.0, "cholmod": 2.0, "pardiso-cholesky": 2.0}
"""Numbers with a 32-bit index that an engine takes at most for each entry of L in AMD's order.
SuperLU's are upper bounds of peaks on grids, as ``tests/methods/test_memory.py`` measures them: up
to 5.1 by colamd and 3.6 by mmd. Those of engines that do not come with SciPy are guesses."""

OTHERS = 4.0

AMG = 130.0
"""Bytes of PyAMG's hierarchies for each entry of A, at most: see `methods.iterative.BYTES`."""


def memory_of(name: str) -> Memory:
    """Bytes by the counts of symbolic analysis: nearly exact for our engines, a bound of others."""
    kind, _, order = name.partition("/")
    if kind == "amg":
        return lambda shape, fmt: AMG * shape.entries

    def memory(shape: Shape, fmt: str) -> float:
        size = get_format(fmt).storage_bytes
        if kind in OWN:
            numbers = (order == "nd" and shape.nd_stored) or shape.stored
            factors = OWN[kind] * size * numbers
        else:
            numbers = shape.filled
            factors = OPAQUE.get(name, OPAQUE.get(kind, OTHERS)) * (size + 4) * numbers
        return factors + ANALYSED * shape.entries if numbers else math.inf

    return memory


def engine(
    name: str,
    then: tuple[str, ...],
    needs: tuple[str, ...] = (),
    low: FloatFormat | None = FP32,
    counts: tuple[str, ...] = (),
) -> Method:
    """A sparse engine with one of its orderings; `low` is the format tried before FP64."""
    formats = (FP64,) if low is None else (low, FP64)
    return Method(
        *(name, True, formats, then),
        needs=needs,
        counts=counts,
        price=price_of(name),
        memory=None if name.startswith("cudss") else memory_of(name),
    )


SPARSE = (
    # PyAMG's algebraic multigrid: a preconditioner for positive definite matrices.
    engine("amg/rs", ("cholesky/amd",), DEFINITE, low=None),
    # SuiteSparse's CHOLMOD, in FP64 alone; MKL's PARDISO; our own supernodal engines. Nested
    # dissection is for systems where its flops were counted: they are part of the price.
    engine("cholmod/metis", ("ldl/amd",), DEFINITE, low=None),
    engine("cholmod/amd", ("ldl/amd",), DEFINITE, low=None),
    engine("pardiso-cholesky/metis", ("ldl/amd",), DEFINITE),
    engine("pardiso-cholesky/mmd", ("ldl/amd",), DEFINITE),
    engine("cholesky/nd", ("ldl/amd",), DEFINITE, counts=("nd_flops",)),
    engine("cholesky/amd", ("ldl/amd",), DEFINITE),
    # Symmetric indefinite: in FP32 too many pivots are too small.
    engine("pardiso-ldl/metis", (SAFE,), SYMMETRIC, low=None),
    engine("pardiso-ldl/mmd", (SAFE,), SYMMETRIC, low=None),
    engine("ldl/amd", (SAFE,), SYMMETRIC, low=None),
    engine("lu/nd", (SAFE,), STATIC, counts=("nd_flops",)),
    engine("lu/amd", (SAFE,), STATIC),
    # Only where pivots stay where the counts expect them: KLU cannot be stopped if they do not.
    engine("klu/amd", (SAFE,), low=None, counts=("fill_is_known",)),
    engine("umfpack/amd", (SAFE,), low=None),
    engine("pardiso/metis", (SAFE,)),
    engine("pardiso/mmd", (SAFE,)),
    # NVIDIA's cuDSS, for systems that are to be solved on a GPU (`device="cuda"`).
    engine("cudss-cholesky/nd", ("cudss/nd", SAFE), DEFINITE),
    engine("cudss/nd", (SAFE,)),
    # SuperLU comes with SciPy. From a weak diagonal pivots leave, and fill in where nobody counted.
    engine("superlu/mmd", (SAFE,), ("symmetric_pattern", "strong_diagonal")),
    engine(SAFE, ()),
)
"""An engine with one of its orderings each."""
