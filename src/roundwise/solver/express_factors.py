"""Factors of small dense matrices with which one compiled call solves and verifies."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import roundwise._kernels as _kernels
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.algorithms.verified_lu import VerifiedLU
from roundwise.backends.native.dense import has_own_lu
from roundwise.backends.native.small_sparse import random_vector
from roundwise.backends.native.structured import (
    LOWER,
    NONE,
    PERHAPS_PERMUTED,
    Found,
    RowsAndColumns,
    look_at,
    triangular_orders,
)
from roundwise.features.probe import looks_positive_definite
from roundwise.formats import FP32, FP64
from roundwise.machine.threads import factorization_threads, ieee_arithmetic, spinning_threads_aside
from roundwise.solver.decide import STRUCTURED_FROM
from roundwise.solver.express import (
    ONE_THREAD_UP_TO,
    Array,
    ExpressAnswer,
    Known,
    answer_of,
    as_known_type,
    has_structure,
    is_held,
    known_of,
    suspicious_ratio,
    with_witness,
    without_witness,
)
from roundwise.solver.express_structured import ACCEPTED, UNKNOWN
from roundwise.solver.prepare import Wanted
from roundwise.solver.system import AS_LARGE

SINGLE = (np.dtype(np.float32), np.dtype(np.complex64))


class DenseFactors:
    """LU of one small dense matrix in a format: `ExpressFactors`.

    With `forward`, answers are right to a few units in the last place. The factors of the transpose
    are made when they are first asked for.
    """

    method, structure = "lu", UNKNOWN

    def __init__(self, A: Array, wanted: Wanted, own: bool = False) -> None:
        self.A = A if own else A.copy()
        self._wanted, self.factor = wanted, wanted.factor
        self._form = as_known_type(self.A)
        ratio = suspicious_ratio(len(A), wanted.factor, wanted.forward)
        self._kept = self._made(ratio, scaled=False)
        self._scaled: Any = None
        self._across: DenseFactors | None = None

    def _made(self, suspicious: float, scaled: bool) -> Any:
        form, factor, forward = self._form, self.factor, self._wanted.forward
        return _kernels.express_factorize(form, factor, scaled, suspicious, forward, 1)

    @property
    def accepted(self) -> bool:
        """Whether no pivot is zero, suspiciously small, or NaN."""
        return not self._kept.refused

    def solve(self, b: Any, trans: Any) -> ExpressAnswer | None:
        if not (type(trans) is str and trans == "N"):
            return self._solve_across(b, trans)
        if type(b) is not np.ndarray:
            return None
        form = self._form
        known = known_of(form.shape, form.dtype, b.shape, b.dtype, *self._wanted[:3])
        if known is None:
            if not is_held(b.dtype):
                return None
            converted = as_known_type(b)
            return None if converted is b else self.solve(converted, trans)
        return self._solved(b, known)

    def _solved(self, b: Array, known: Known) -> ExpressAnswer | None:
        given = with_witness(b, self.factor)
        x = np.empty(given.shape, known.dtype)
        rest = known.rest
        status, error, ratio, steps = _kernels.express_substitute(self._kept, given, x, *rest)
        if status != 0:  # products out of range may be a matter of units alone
            if self._scaled is None:
                self._scaled = self._made(known.gate.suspicious, scaled=True)
            if self._scaled.refused:
                return None
            status, error, ratio, steps = _kernels.express_substitute(self._scaled, given, x, *rest)
            if status != 0:
                return None
        x = x if given is b else without_witness(x, b)
        told = known.tolerance, ratio, "lu", self.factor, steps, known.forward
        return ExpressAnswer(x, known.unit * error, *told)

    def _solve_across(self, b: Any, trans: Any) -> ExpressAnswer | None:
        """With the transpose; the conjugate transpose solves for conjugate columns."""
        if not isinstance(trans, str | int) or trans not in ("N", "T", "H", 0, 1, 2):
            return None
        if trans in ("N", 0):
            return self.solve(b, "N")
        if self._across is None:
            with ieee_arithmetic():
                self._across = self._transpose()
        if not self._across.accepted or type(b) is not np.ndarray:
            return None
        conjugate = trans in ("H", 2) and self._form.dtype.kind == "c"
        found = self._across.solve(b.conj() if conjugate else b, "N")
        return found._replace(x=found.x.conj()) if found is not None and conjugate else found

    def _transpose(self) -> DenseFactors:
        return DenseFactors(self.A.T, self._wanted, own=True)


class StructuredFactors(DenseFactors):
    """A triangle, perhaps with rows and columns in disorder, or the LU of a band, in FP64."""

    def __init__(self, A: Array, wanted: Wanted, found: Found, own: bool = False) -> None:
        self.structure = found
        self._orders: RowsAndColumns | None = None
        self.method = found.method
        super().__init__(A, Wanted(wanted.tol), own)

    def _made(self, suspicious: float, scaled: bool) -> Any:
        found, form = self.structure, self._form
        if found.kind == PERHAPS_PERMUTED:
            self._orders = triangular_orders(form)
            if self._orders is None:
                return None
            rows, columns = self._orders
            found, form = Found(LOWER), form[rows][:, columns]
        return _kernels.structured_factorize(form, *found, suspicious)

    @property
    def accepted(self) -> bool:
        return self._kept is not None and bool(self._kept.accepted)

    def _solved(self, b: Array, known: Known) -> ExpressAnswer | None:
        x = np.empty(b.shape, known.dtype)
        given = b if self._orders is None else b[self._orders[0]]
        threads = factorization_threads()
        status, error, ratio, steps = _kernels.structured_substitute(
            self._kept, given, x, threads, *known.gate
        )
        if status != ACCEPTED:
            return None
        if self._orders is not None:
            ordered, x = x, np.empty(b.shape, known.dtype)
            x[self._orders[1]] = ordered
        error *= known.unit
        structure = self.structure if self._orders is None else UNKNOWN
        told = self.method, FP64.name, steps, False, structure
        return ExpressAnswer(x, error, known.tolerance, ratio, *told)

    def _transpose(self) -> DenseFactors:
        return StructuredFactors(self.A.T, self._wanted, self.structure.transpose, own=True)


class ThreadedFactors:
    """LU of a dense matrix that several threads factorize: `ExpressFactors`.

    In FP64; in FP32 for a matrix of single precision, if it is far from a singular one. The matrix
    is kept in its own type.
    """

    method, structure = "lu", UNKNOWN

    def __init__(self, A: Array, wanted: Wanted, own: bool = False) -> None:
        form = as_known_type(A)
        # F: substitution takes less time
        order: Literal["C", "F"] = "C" if form.dtype.kind == "c" else "F"
        self.A = form if own or form is not A else form.copy(order=order)
        self._tol, self.factor = wanted.tol, FP64.name
        with spinning_threads_aside(len(A)):
            if self.A.dtype in SINGLE and self._suffices(lu := VerifiedLU(self.A, FP32)):
                self._lu, self.factor = lu, FP32.name
            else:
                self._lu = VerifiedLU(self.A)

    def _suffices(self, lu: VerifiedLU) -> bool:
        """Whether factors in FP32 leave no doubt that A is regular.

        Neither their pivots nor how much longer ``A^-1 b`` is than b, for a random b, come near to
        what rounding errors make of a singular matrix.
        """
        lost = suspicious_ratio(len(self.A), FP32.name)
        if not lu.pivot_ratio > lost:
            return False
        b = random_vector(len(self.A)).astype(self.A.dtype)
        found = lu.solve(b, default_tolerance(len(b), FP32))
        return found is not None and found.stretch * lost < 1.0

    @property
    def accepted(self) -> bool:
        """Whether no pivot is zero, suspiciously small, or NaN."""
        return self._lu.pivot_ratio > suspicious_ratio(len(self.A), self.factor)

    def solve(self, b: Any, trans: Any) -> ExpressAnswer | None:
        names = {"N": "N", "T": "T", "H": "H", 0: "N", 1: "T", 2: "H"}
        if type(b) is not np.ndarray or not isinstance(trans, str | int) or trans not in names:
            return None
        if not is_held(b.dtype):
            return None
        b = as_known_type(b)
        known = known_of(
            self.A.shape, self.A.dtype, b.shape, b.dtype, self._tol, self.factor, False
        )
        if known is None:
            return None
        if self.factor == FP32.name and known.dtype not in SINGLE:  # x in double precision
            with ieee_arithmetic(), spinning_threads_aside(len(self.A)):
                self._lu, self.factor = VerifiedLU(self.A), FP64.name
            return self.solve(b, trans)
        with ieee_arithmetic():
            return answer_of(self._lu, b, known, names[trans])


def dense_factors(
    A: Any, wanted: Wanted, own: bool = False
) -> DenseFactors | ThreadedFactors | None:
    """Factors of a dense matrix by one call, if it is small, or if it is a band or triangle.

    `own`: nobody else has A, so that it need not be copied. None if the matrix is refused, or not
    such.
    """
    if type(A) is not np.ndarray or A.ndim != 2 or not 0 < len(A) == A.shape[1]:
        return None
    if not is_held(A.dtype):
        return None
    structure = wanted.zeros
    if structure == UNKNOWN and len(A) < _kernels.EXPRESS_LOOKS_FROM:
        structure = None
    if structure is not None and not wanted.forward:
        found = look_at(as_known_type(A)) if structure == UNKNOWN else structure
        if found.kind != NONE:
            with_structure = StructuredFactors(A, wanted, found, own)
            if with_structure.accepted:
                return with_structure
            if found.kind != PERHAPS_PERMUTED:
                return None
    n = len(A)
    # For answers in single precision no lower format than that of A has anything to gain.
    size = AS_LARGE * n if A.dtype.kind == "c" else n
    is_plain = not (wanted.is_low or wanted.forward) and has_own_lu()
    own_format = A.dtype in SINGLE and is_plain and wanted.takes(0) and size < wanted.most
    if not (own_format or wanted.takes(size)):
        return None
    look = n >= STRUCTURED_FROM and A.dtype.kind == "f"
    if look and (looks_positive_definite(A) or (structure is None and has_structure(A))):
        return None
    made = kept_factors(A, wanted, own)
    return made if made.accepted else None


def kept_factors(A: Array, wanted: Wanted, own: bool = False) -> DenseFactors | ThreadedFactors:
    """Factors of a dense matrix whose order suits one compiled call, or one by several threads."""
    if len(A) > ONE_THREAD_UP_TO and not (wanted.is_low or wanted.forward):
        return ThreadedFactors(A, wanted, own)
    return DenseFactors(A, wanted, own)
