"""Sparse systems of moderate size without decisions: solved and verified at once, by one gate.

A is read by one compiled pass, whatever its format and type, analysed (matching, blocks, order,
count), and factorized by the way with the least price (`backends/native/small_sparse.py`). The
left-looking LU, which most of them take, solves and verifies in one compiled call. Its factors stay
with a `Factorization`, and with a `Solver` for the next matrix with the same pattern.

What is refused goes on to the general path, which finds out why; so does what takes so long that
a choice pays, with the orders that were found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import roundwise._kernels as _kernels
from roundwise._csr import FORMS, SparseLU, places_of, read_again, read_sparse
from roundwise.algorithms.accuracy import default_tolerance, passes, upper_bounds, within
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native import exact
from roundwise.backends.native.small_sparse import (
    DENSE,
    Inverse,
    factorized,
    is_for_dense,
    solved,
    stored_rows,
)
from roundwise.backends.real_form import OVER_ROOT_2, ROOT_2
from roundwise.formats import FP32, FP64
from roundwise.machine.threads import ieee_arithmetic
from roundwise.methods import Shape
from roundwise.solver.express import (
    ALWAYS_SMALL,
    AT_ONCE,
    EXPRESS_TYPES,
    ONE_THREAD_UP_TO,
    REFUSED,
    Array,
    ExpressAnswer,
    Refused,
    as_known_type,
    attempt,
    gate_of,
    known_of,
    solution_of,
    with_witness,
    without_witness,
)
from roundwise.solver.express_factors import DenseFactors
from roundwise.solver.inputs import answer_dtype
from roundwise.solver.policy_argument import default_policy
from roundwise.solver.solution import Solution

METHOD = "lu/left-looking"

PLAIN, TRANSPOSE, ADJOINT = (False, False), (True, False), (True, True)
SIDES: dict[Any, tuple[bool, bool]] = {"N": PLAIN, "T": TRANSPOSE, "H": ADJOINT}
SIDES |= {0: PLAIN, 1: TRANSPOSE, 2: ADJOINT}
"""Whether `trans` asks for the transpose, and for its conjugate."""


class Wanted(NamedTuple):
    """What a caller wants of a sparse system's answer, besides what shapes and types say."""

    tol: float | None = None
    factor: str = FP64.name
    """The format of factors that were asked for; in FP32 they are made where FP64 was not said."""
    forward: bool = False
    """Whether x itself is to be right, not only its residual small."""
    transposed: bool = False

    @property
    def is_low(self) -> bool:
        return self.factor != FP64.name


class Asked(NamedTuple):
    """What shapes, types and tolerance say of a system."""

    dtype: Any  # of x
    tolerance: float
    gate: tuple[float, float, float, float, float]  # the last arguments of the compiled call
    unit: float  # the backward error of the answer over that of the columns that are solved for


@lru_cache(maxsize=4096)
def asked_of(n: int, dtype: Any, shape: tuple[int, ...], b_dtype: Any, tol: Any) -> Asked | None:
    """None if b has no columns of n numbers, or of numbers that are not converted here."""
    if len(shape) not in (1, 2) or shape[0] != n or 0 in shape or b_dtype not in EXPRESS_TYPES:
        return None
    answer = np.dtype(answer_dtype(np.empty(0, dtype), np.empty(0, b_dtype)))
    is_single, is_complex = answer in (np.float32, np.complex64), dtype.kind == "c"
    # The parts of a complex b are columns of a real system (`Factorization.solve` has the proof).
    share, unit = (OVER_ROOT_2, ROOT_2) if b_dtype.kind == "c" and not is_complex else (1.0, 1.0)
    with ieee_arithmetic():  # the gate of a thread that rounds upwards is not that of the next
        tolerance = default_tolerance(n, FP32 if is_single else FP64) if tol is None else tol
        gate = gate_of(n, is_complex, tolerance * share)
    parts = gate.tolerance, gate.growth, gate.exact_error, gate.least, gate.most
    return Asked(answer, tolerance, parts, unit)


@dataclass(eq=False)
class SparseFactors:
    """Factors of one sparse matrix, or of its transpose, that solve and verify by one call."""

    A: Any
    lu: SparseLU
    wanted: Wanted
    method = METHOD

    @property
    def factor(self) -> str:
        """The format of the factors."""
        return FP32.name if self.lu.is_low else FP64.name

    def solve(self, b: Any, trans: Any = "N") -> ExpressAnswer | None:
        """See `ExpressFactors`."""
        if type(b) is not np.ndarray or type(trans) not in (str, int) or trans not in SIDES:
            return None
        if b.dtype not in EXPRESS_TYPES:
            if not np.can_cast(b.dtype, np.complex128):
                return None
            b = as_known_type(b)
        lu, wanted = self.lu, self.wanted
        asked = asked_of(lu.n, self.A.dtype, b.shape, b.dtype, wanted.tol)
        if asked is None:
            return None
        x, forward = np.empty(b.shape, asked.dtype), wanted.forward
        status, error, steps = lu.solve(b, x, *SIDES[trans], forward, *asked.gate)
        if status != 0:
            if not lu.is_low:
                return None
            # Factors in FP64 come next, with the same pivots.
            higher = read_again(lu, self.A, "A", wanted.transposed)
            if higher is None or higher.result != "factorized":
                return None
            self.lu = higher
            return self.solve(b, trans)
        factor = FP32.name if lu.is_low else FP64.name
        error *= asked.unit
        given = asked.tolerance, math.nan, METHOD, factor, steps, forward
        return ExpressAnswer(x, error, *given)

    def renewed(self, A: Any, wanted: Wanted) -> SparseFactors | None:
        """Those of another matrix, with the same pivots; None if its pattern or type is another.

        None, too, if these pivots do not serve it.
        """
        if A.shape != self.A.shape or (A.dtype.kind == "c") != (self.A.dtype.kind == "c"):
            return None
        found = read_again(self.lu, A, "A", wanted.transposed, wanted.is_low)
        if found is None or found.result != "factorized":
            return None
        return SparseFactors(A, found, wanted)


@dataclass(eq=False)
class MadeDense:
    """Dense factors of a sparse matrix that fills in: `ExpressFactors`."""

    A: Any
    lu: SparseLU  # its places, which those of the next matrix are compared with
    wanted: Wanted
    dense: DenseFactors
    method = "lu"

    @property
    def factor(self) -> str:
        return self.wanted.factor

    def solve(self, b: Any, trans: Any = "N") -> ExpressAnswer | None:
        """See `ExpressFactors`."""
        return self.dense.solve(b, trans)

    def renewed(self, A: Any, wanted: Wanted) -> None:
        """None: there are no pivots to go on with."""
        return


def sparse_factors(
    A: Any, wanted: Wanted, columns: int, bound: float
) -> SparseFactors | MadeDense | None:
    """Factors of a square A for many solves; None if others are better, or if there are none.

    They have a copy of A. It is made when A was read: SciPy trusts the indices that it copies.
    Dense ones are made for less than `bound` unknowns.
    """
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.shape[0]:
        return None
    if not np.can_cast(A.dtype, np.complex128):
        return None
    lu = read_sparse(A, "A")
    rival = None if wanted.is_low else _rival
    found = factorized(lu, columns, False, True, rival, wanted.is_low)
    if found == DENSE and lu.n < bound:
        tol, factor, forward = wanted.tol, wanted.factor, wanted.forward
        dense = DenseFactors(dense_of(lu, A.dtype), tol, factor, forward, own=True)
        if dense.accepted:
            return MadeDense(A.copy(), lu, wanted, dense)
    if lu.result == "analysed" and found == DENSE:
        lu.factorize(wanted.is_low)
    return SparseFactors(A.copy(), lu, wanted) if lu.result == "factorized" else None


class SparseSequence:
    """The last factors of a sequence of matrices with one pattern."""

    def __init__(self, factors: SparseFactors | MadeDense, bound: float) -> None:
        self._last, self._bound = factors, bound

    def next(self, A: Any) -> SparseFactors | MadeDense | None:
        """Factors of the next matrix, of which it has a copy; None if its pattern is another."""
        last = self._last
        found: SparseFactors | MadeDense | None = last.renewed(A, last.wanted)
        if found is not None:
            found.A = A.copy()
        elif is_same_pattern(last.lu, A):
            found = sparse_factors(A, last.wanted, 1, self._bound)
        if found is not None:
            self._last = found
        return found


def is_same_pattern(lu: SparseLU, A: Any) -> bool:
    other = read_sparse(A, "A")
    return all(
        np.array_equal(one, two) for one, two in zip(lu.rows[:2], other.rows[:2], strict=True)
    )


def tiny_sparse(A: Any, b: Any, wanted: Wanted) -> ExpressAnswer | Refused | None:
    """A sparse system with n < ALWAYS_SMALL by one compiled call; None if it is no such system.

    It raises nothing.
    """
    if type(b) is not np.ndarray or A.ndim != 2 or not 0 < A.shape[0] < ALWAYS_SMALL:
        return None
    if A.format not in FORMS:
        return None
    values = A.data
    if values.dtype not in EXPRESS_TYPES:
        if not np.can_cast(values.dtype, np.complex128):
            return None
        values = as_known_type(values)
    if b.dtype not in EXPRESS_TYPES:
        if not np.can_cast(b.dtype, np.complex128):
            return None
        b = as_known_type(b)
    shapes = A.shape, values.dtype, b.shape, b.dtype
    known = known_of(*shapes, wanted.tol, wanted.factor, wanted.forward)
    if known is None:
        return None
    form, first, second = places_of(A, wanted.transposed)
    given = with_witness(b, wanted.factor)
    x = np.empty(given.shape, known.dtype)
    try:
        status, error, pivot_ratio, steps = _kernels.express_solve_sparse(
            form, known.n, first, second, values, given, x, *known.arguments
        )
    except ValueError:  # an array is not contiguous: the general path copies it
        return None
    if status != 0:
        return REFUSED
    x = x if given is b else without_witness(x, b)
    error, tolerance = known.unit * error, known.tolerance
    asked = wanted.factor, steps, wanted.forward
    return ExpressAnswer(x, error, tolerance, pivot_ratio, "lu", *asked)


def express_sparse(
    A: Any,
    b: Any,
    wanted: Wanted,
    bound: float,
    panels: bool = True,
    known: Iterable[SparseFactors] = (),
) -> tuple[ExpressAnswer | Orders | Refused | None, SparseFactors | None]:
    """A system with a square sparse A at once: its answer, and factors that may serve again.

    Where no x is returned, there may be orders of A's pattern that a decision can go on with;
    `panels` is False for a caller who would rather have them than an x by the engine that needs
    them, as more matrices with the pattern will come. `known` are factors of other matrices,
    perhaps with the same pattern. `bound` is that of `express`, for matrices that are better dense.
    """
    fits = A.ndim == 2 and type(b) is np.ndarray and A.shape[0] == A.shape[1]
    if not fits or not all(np.can_cast(one.dtype, np.complex128) for one in (A, b)):
        return None, None
    b = b if b.dtype in EXPRESS_TYPES else as_known_type(b)
    asked = asked_of(A.shape[0], A.dtype, b.shape, b.dtype, wanted.tol)
    if asked is None:
        return None, None
    for factors in known:
        again = factors.renewed(A, wanted)
        if again is not None and (answer := again.solve(b)) is not None:
            return answer, again
    lu = read_sparse(A, "A", wanted.transposed)
    columns = b.size // len(b)

    def as_dense() -> ExpressAnswer | Refused | None:
        dense = dense_of(lu, A.dtype)
        return attempt(dense, b, wanted.tol, bound, wanted.factor, wanted.forward)

    may_be_dense = not wanted.forward or lu.n <= ONE_THREAD_UP_TO
    if may_be_dense and is_for_dense(lu, columns):
        return as_dense(), None
    rival = None if wanted.is_low else _rival
    found = factorized(lu, columns, panels, not panels, rival, wanted.is_low)
    if found == DENSE and may_be_dense:
        return as_dense(), None
    if found == DENSE and lu.result == "analysed":
        lu.factorize(wanted.is_low)
    if isinstance(found, Inverse) and not wanted.forward:
        return _by_engine(lu, b, asked, found), None
    if lu.result != "factorized":
        return found if isinstance(found, Orders) else None, None
    factors = SparseFactors(A, lu, wanted)
    answer = factors.solve(b)
    return answer or Refused(METHOD), None if answer is None else factors


def _rival(shape: Shape) -> float:
    """The seconds of the best method that the ways at hand do not include, decision included."""
    return default_policy().rival_seconds("sparse", shape)


def _by_engine(lu: SparseLU, b: Array, asked: Asked, inverse: Inverse) -> Any:
    """The same with factors of another engine, which real numbers have; else its orders."""
    if b.dtype.kind == "c":
        return inverse.orders
    n, right = len(b), b.astype(np.float64, copy=False)
    single = asked.dtype == np.float32
    within_gate = within(asked.tolerance, n, exact.error_of(n))
    found = solved(stored_rows(lu), right, within_gate, inverse, single)
    if not isinstance(found, tuple):
        return found  # perhaps few digits are right, or A is singular: that is looked into
    x, error, method = found
    error = float(upper_bounds(error, n, exact.error_of(n)))
    if not passes(error, asked.tolerance):
        return inverse.orders
    return ExpressAnswer(
        x.astype(asked.dtype, copy=False), error, asked.tolerance, math.nan, method
    )


def dense_of(lu: SparseLU, dtype: Any) -> Array:
    """The matrix as an array: of A's type if that is single precision, else of the double one."""
    is_complex = dtype.kind == "c"
    dense = np.zeros((lu.n, lu.n), np.complex128 if is_complex else np.float64)
    lu.fill(dense)
    return dense.astype(dtype) if dtype in (np.float32, np.complex64) else dense


def sparse_solution_of(
    answer: ExpressAnswer,
    factors: SparseFactors | None,
    A: Any,
    b: Array,
    wanted: Wanted,
    bound: float,
    seconds: float,
    reason: str = AT_ONCE,
) -> Solution:
    """`solution_of` for what `express_sparse` or `tiny_sparse` returned."""

    def again() -> ExpressAnswer | None:
        if factors is not None:
            made = factors.renewed(A, wanted._replace(factor=answer.factor))
            return None if made is None else made.solve(b)
        found: Any = tiny_sparse(A, b, wanted)
        if not isinstance(found, ExpressAnswer):
            found, _ = express_sparse(A, b, wanted, bound)
        return found if isinstance(found, ExpressAnswer) else None

    meant = A.T if wanted.transposed else A
    return solution_of(answer, meant, b, wanted.tol, seconds, again, reason)
