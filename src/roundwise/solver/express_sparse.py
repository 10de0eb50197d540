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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import roundwise._kernels as _kernels
from roundwise._csr import FORMS, SparseLU, places_of, read_again, read_sparse
from roundwise.algorithms.accuracy import passes, upper_bounds, within
from roundwise.backends.contract import ArithmeticFailure
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
from roundwise.formats import FP32, FP64
from roundwise.machine.threads import ieee_arithmetic
from roundwise.methods import Shape
from roundwise.policies.neighbours import ALWAYS_SMALL
from roundwise.solver.express import (
    EXPRESS_TYPES,
    ONE_THREAD_UP_TO,
    REFUSED,
    Array,
    ExpressAnswer,
    Known,
    Refused,
    answered,
    as_known_type,
    attempt,
    is_held,
    known_of,
    with_witness,
    without_witness,
)
from roundwise.solver.express_factors import DenseFactors
from roundwise.solver.policy_argument import default_policy
from roundwise.solver.prepare import Wanted

METHOD = "lu/left-looking"

PLAIN, TRANSPOSE, ADJOINT = (False, False), (True, False), (True, True)
SIDES: dict[Any, tuple[bool, bool]] = {"N": PLAIN, "T": TRANSPOSE, "H": ADJOINT}
SIDES |= {0: PLAIN, 1: TRANSPOSE, 2: ADJOINT}
"""Whether `trans` asks for the transpose, and for its conjugate."""


def sparse_known_of(A: Any, shape: tuple[int, ...], dtype: Any, tol: float | None) -> Known | None:
    """What is known of a system with a sparse A, of any type that double precision holds.

    None if b has no columns of as many numbers as A has rows, or of numbers that are not converted
    here.
    """
    own = A.dtype if A.dtype in EXPRESS_TYPES else np.result_type(A.dtype, np.float64)
    return known_of(A.shape, own, shape, dtype, tol, FP64.name, False)


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
        if not is_held(b.dtype):
            return None
        b = b if b.dtype in EXPRESS_TYPES else as_known_type(b)
        lu, wanted = self.lu, self.wanted
        known = sparse_known_of(self.A, b.shape, b.dtype, wanted.tol)
        if known is None:
            return None
        x, forward, gate = np.empty(b.shape, known.dtype), wanted.forward, known.gate
        asked = gate.tolerance, gate.growth, gate.exact_error, gate.least, gate.most
        status, error, steps = lu.solve(b, x, *SIDES[trans], forward, *asked)
        if status != 0:
            if not lu.is_low:
                return None
            # Factors in FP64 come next, with the same pivots.
            higher = read_again(lu, self.A, "A", wanted.transposed)
            if higher is None or higher.result != "factorized":
                return None
            self.lu = higher
            return self.solve(b, trans)
        told = known.tolerance, math.nan, METHOD, self.factor, steps, forward
        return ExpressAnswer(x, known.unit * error, *told, factors=self)

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


def sparse_factors(A: Any, wanted: Wanted, columns: int) -> SparseFactors | MadeDense | None:
    """Factors of a square A for many solves; None if others are better, or if there are none.

    They have a copy of A. It is made when A was read: SciPy trusts the indices that it copies.
    """
    if A.ndim != 2 or not 0 < A.shape[0] == A.shape[1] or not is_held(A.dtype):
        return None
    lu = read_sparse(A, "A")
    rival = None if wanted.is_low else _rival
    found = factorized(lu, columns, False, True, rival, wanted.is_low)
    if found == DENSE and wanted.takes(lu.n):
        dense = DenseFactors(dense_of(lu, A.dtype), wanted, own=True)
        if dense.accepted:
            return MadeDense(A.copy(), lu, wanted, dense)
    if lu.result == "analysed" and found == DENSE:
        lu.factorize(wanted.is_low)
    return SparseFactors(A.copy(), lu, wanted) if lu.result == "factorized" else None


class SparseSequence:
    """The last factors of a sequence of matrices with one pattern."""

    def __init__(self, factors: SparseFactors | MadeDense) -> None:
        self._last = factors

    def next(self, A: Any) -> SparseFactors | MadeDense | None:
        """Factors of the next matrix, of which it has a copy; None if its pattern is another."""
        last = self._last
        found: SparseFactors | MadeDense | None = last.renewed(A, last.wanted)
        if found is not None:
            found.A = A.copy()
        elif is_same_pattern(last.lu, A):
            found = sparse_factors(A, last.wanted, 1)
        if found is not None:
            self._last = found
        return found


def is_same_pattern(lu: SparseLU, A: Any) -> bool:
    other = read_sparse(A, "A")
    return all(
        np.array_equal(one, two) for one, two in zip(lu.rows[:2], other.rows[:2], strict=True)
    )


def attempt_sparse(
    A: Any, b: Any, wanted: Wanted, panels: bool = True, known: Iterable[SparseFactors] = ()
) -> ExpressAnswer | Orders | Refused | None:
    """A system with a square sparse A at once; None if it is no such system.

    Where no x is returned, there may be orders of A's pattern that a decision can go on with;
    `panels` is False for a caller who would rather have them than an x by the engine that needs
    them, as more matrices with the pattern will come. `known` are factors of other matrices,
    perhaps with the same pattern.
    """
    fits = A.ndim == 2 and type(b) is np.ndarray and A.shape[0] == A.shape[1]
    if not (fits and is_held(A.dtype) and is_held(b.dtype)):
        return None
    b = b if b.dtype in EXPRESS_TYPES else as_known_type(b)
    if 0 < A.shape[0] < ALWAYS_SMALL and A.format in FORMS:
        found = _tiny(A, b, wanted)
        if found is not None:
            return found
    with ieee_arithmetic():
        return _by_least_price(A, b, wanted, panels, known)


def repeated(
    answer: ExpressAnswer, A: Any, b: Array, wanted: Wanted
) -> Callable[[], ExpressAnswer | None]:
    """What finds the answer once more, with A and b as they are then."""

    def again() -> ExpressAnswer | None:
        if answer.factors is None:
            return answered(attempt_sparse(A, b, wanted))
        made = answer.factors.renewed(A, wanted._replace(factor=answer.factor))
        return None if made is None else made.solve(b)

    return again


def _tiny(A: Any, b: Array, wanted: Wanted) -> ExpressAnswer | Refused | None:
    """By one compiled call, which raises nothing; None if types are not for it."""
    values = A.data if A.dtype in EXPRESS_TYPES else as_known_type(A.data)
    known = known_of(A.shape, values.dtype, b.shape, b.dtype, *wanted[:3])
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
    told = known.tolerance, pivot_ratio, "lu", wanted.factor, steps, wanted.forward
    return ExpressAnswer(x, known.unit * error, *told)


def _by_least_price(
    A: Any, b: Array, wanted: Wanted, panels: bool, kept: Iterable[SparseFactors]
) -> ExpressAnswer | Orders | Refused | None:
    known = sparse_known_of(A, b.shape, b.dtype, wanted.tol)
    if known is None:
        return None
    for factors in kept:
        again = factors.renewed(A, wanted)
        if again is not None and (answer := again.solve(b)) is not None:
            return answer
    lu = read_sparse(A, "A", wanted.transposed)
    columns = b.size // len(b)

    def as_dense() -> ExpressAnswer | Refused | None:
        return attempt(dense_of(lu, A.dtype), b, wanted)

    may_be_dense = not wanted.forward or lu.n <= ONE_THREAD_UP_TO
    if may_be_dense and is_for_dense(lu, columns):
        return as_dense()
    rival = None if wanted.is_low else _rival
    found = factorized(lu, columns, panels, not panels, rival, wanted.is_low)
    if found == DENSE and may_be_dense:
        return as_dense()
    if found == DENSE and lu.result == "analysed":
        lu.factorize(wanted.is_low)
    if isinstance(found, Inverse) and not wanted.forward:
        by_engine: ExpressAnswer | Orders | None = _by_engine(lu, b, known, found)
        return by_engine
    if lu.result != "factorized":
        return found if isinstance(found, Orders) else None
    return SparseFactors(A, lu, wanted).solve(b) or Refused(METHOD)


def _rival(shape: Shape) -> float:
    """The seconds of the best method that the ways at hand do not include, decision included."""
    return default_policy().rival_seconds("sparse", shape)


def _by_engine(lu: SparseLU, b: Array, known: Known, inverse: Inverse) -> Any:
    """The same with factors of another engine, which real numbers have; else its orders."""
    if b.dtype.kind == "c":
        return inverse.orders
    n, right = len(b), b.astype(np.float64, copy=False)
    single = known.dtype == np.float32
    within_gate = within(known.tolerance, n, exact.error_of(n))
    try:
        found = solved(stored_rows(lu), right, within_gate, inverse, single)
    except ArithmeticFailure:  # b is not finite, or x leaves float64: the caller tells which
        return inverse.orders
    if not isinstance(found, tuple):
        return found  # perhaps few digits are right, or A is singular: that is looked into
    x, error, method = found
    error = float(upper_bounds(error, n, exact.error_of(n)))
    if not passes(error, known.tolerance):
        return inverse.orders
    x = x.astype(known.dtype, copy=False)
    return ExpressAnswer(x, error, known.tolerance, math.nan, method)


def dense_of(lu: SparseLU, dtype: Any) -> Array:
    """The matrix as an array: of A's type if that is single precision, else of the double one."""
    is_complex = dtype.kind == "c"
    dense = np.zeros((lu.n, lu.n), np.complex128 if is_complex else np.float64)
    lu.fill(dense)
    return dense.astype(dtype) if dtype in (np.float32, np.complex64) else dense
