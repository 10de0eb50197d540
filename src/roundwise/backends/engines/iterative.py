"""Preconditioned Krylov methods behind the contract of factorizations.

Nothing is factorized: `IterativeFactors.solve` iterates until ``||r||_2 <= 1e-8 ||b||_2``, and
`IterativeFactors.refined`, which a solve of the front door asks first, until the gate's own rule is
met by ``b - A x`` itself. The preconditioner is made of A in FP64, and stored in the format of the
action; Krylov vectors and products with A are in FP64.

A method that is not on its way is given up (`Status.SLOW_CONVERGENCE`): from the tenth iteration on
the forecast by the contraction so far must not exceed what is granted. That is counted in
iterations, never in measured time, so that the same call has the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise._forking import cached_property
from roundwise.backends.checks import Float64Array, require_square
from roundwise.backends.contract import ArithmeticFailure, AtOnce, Status, ToRefine
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.opaque import HiddenFactors
from roundwise.backends.engines.structure import SymmetricPattern, without_values
from roundwise.backends.native import exact
from roundwise.backends.preconditioners import STORED_IN, Incomplete, Multigrid, Preconditioner
from roundwise.formats import FP64, FloatFormat
from roundwise.krylov import BackwardError, KrylovStatus, Residual, Sizes, bicgstab, cg, products_of

TOLERANCE = 1e-8
"""The residual of a solve, relative to its right-hand side, in the 2-norm."""

MOST_ITERATIONS = 300
"""Granted where nobody knows of a faster method. A taste: a preconditioner that needs more does not
deserve its name."""

CHECK_AFTER = 10
"""Iterations before the first forecast. A taste: until then the contraction may be that of the
first, easy components."""

FAILURES = {
    KrylovStatus.INDEFINITE: Status.INDEFINITE,
    KrylovStatus.INDEFINITE_PRECONDITIONER: Status.NOT_POSITIVE_DEFINITE,
    KrylovStatus.NONFINITE: Status.OVERFLOW,
}

Granted = Callable[[float], bool]
"""Whether so many iterations, which a forecast expects of all solves together, are granted."""


Make = Callable[[sparse.csr_array, FloatFormat], Preconditioner]


class IterativeEngine(Engine):
    """A Krylov method with a preconditioner."""

    formats = STORED_IN
    stores = True
    stops_at = TOLERANCE
    make: ClassVar[dict[str, Make]]
    """The preconditioner of a matrix in a format of storage, by ordering."""

    def analyse(self, pattern: sparse.csr_array, ordering: str) -> IterativeSymbolic:
        definite = self.suits == "positive definite"
        return IterativeSymbolic(pattern, f"{self.name}/{ordering}", self.make[ordering], definite)


class MultigridEngine(IterativeEngine):
    """Conjugate gradients preconditioned by a V-cycle of smoothed aggregation."""

    name = "multigrid"
    orderings = ("sa",)
    suits = "positive definite"
    make: ClassVar = {"sa": lambda A, fmt: Multigrid(A, fmt, nodes=unknowns_of_node(A))}


class IcEngine(IterativeEngine):
    """Conjugate gradients preconditioned by incomplete Cholesky; the ordering: levels of fill."""

    name = "ic"
    orderings = ("0", "1", "2")
    suits = "positive definite"
    make: ClassVar = {
        "0": lambda A, fmt: Incomplete(A, fmt, 0, definite=True),
        "1": lambda A, fmt: Incomplete(A, fmt, 1, definite=True),
        "2": lambda A, fmt: Incomplete(A, fmt, 2, definite=True),
    }


class IluEngine(IterativeEngine):
    """BiCGSTAB preconditioned by incomplete LU; the ordering is the levels of fill."""

    name = "ilu"
    orderings = ("0", "1", "2")
    suits = "with a strong diagonal"
    make: ClassVar = {
        "0": lambda A, fmt: Incomplete(A, fmt, 0),
        "1": lambda A, fmt: Incomplete(A, fmt, 1),
        "2": lambda A, fmt: Incomplete(A, fmt, 2),
    }


class IterativeSymbolic(Symbolic):
    """A pattern: preconditioners depend on the values, and are made for each matrix."""

    def __init__(self, pattern: sparse.csr_array, method: str, make: Make, definite: bool) -> None:
        require_square(pattern.shape)
        self.method, self._pattern, self._make = method, without_values(pattern), make
        self._symmetric = SymmetricPattern(pattern) if definite else None

    def factorize(self, values: NDArray[Any], fmt: FloatFormat) -> IterativeFactors:
        """`values` are those of FP64, whatever the format of storage."""
        if self._symmetric is not None:
            self._symmetric.require_symmetric(values, self.method, fmt)
        if not values.any():
            raise ArithmeticFailure(Status.ZERO_PIVOT, self.method, fmt)
        places = self._pattern.indices, self._pattern.indptr
        A = sparse.csr_array((values.astype(np.float64), *places), self._pattern.shape)
        definite = self._symmetric is not None
        return IterativeFactors(A, self._make(A, fmt), definite, self._make)


def unknowns_of_node(A: sparse.csr_array) -> int:
    """How many consecutive rows always have the same pattern: the unknowns of a point, 1 to 6.

    Of a displacement in space there are three: they stay together on coarser levels.
    """
    lengths, n = np.diff(A.indptr), A.shape[0]
    for size in (6, 3, 2):
        if n % size or n < 4 * size:
            continue
        groups = lengths.reshape(-1, size)
        if not (groups == groups[:, :1]).all() or not (lengths % size == 0).all():
            continue
        first = np.repeat(A.indptr[:-1].reshape(-1, size)[:, 0], groups[:, 0])
        place = np.arange(len(first)) - np.repeat(
            np.cumsum(groups[:, 0]) - groups[:, 0], groups[:, 0]
        )
        columns = A.indices[first + place]
        same = all(
            np.array_equal(
                columns, A.indices[first + place + k * np.repeat(groups[:, 0], groups[:, 0])]
            )
            for k in range(1, size)
        )
        # Whole blocks: the columns, too, come in such groups.
        if same and (columns.reshape(-1, size) == columns[::size, None] + np.arange(size)).all():
            return size
    return 1


class IterativeFactors(HiddenFactors):
    """A, a preconditioner, and the Krylov method that solves with both; `entries` are the latter's.

    `granted` may be set: it judges forecasts.
    """

    is_sparse = True

    def __init__(
        self, A: sparse.csr_array, preconditioner: Preconditioner, definite: bool, make: Make
    ) -> None:
        super().__init__(preconditioner.format, A.shape[0], preconditioner.name)
        self.preconditioner, self.entries = preconditioner, preconditioner.bytes // 8
        self.granted: Granted | None = None
        self.iterations = 0
        """Of all solves."""
        self._A, self._times, self._make = A, products_of(A), make
        self._definite = definite
        self._run = cg if definite else bicgstab

    @cached_property
    def _transposed(self) -> IterativeFactors:
        """The same for A'."""
        A = sparse.csr_array(self._A.T.tocsr())
        return IterativeFactors(A, self._make(A, self.fmt), False, self._make)

    def _solve_columns(self, b: Float64Array, transpose: bool) -> Float64Array:
        if transpose and not self._definite:
            return self._transposed._solve_columns(b, False)
        block = np.array(b, order="F")
        scales = np.abs(block).max(axis=0, initial=0.0)
        if not np.isfinite(scales).all():
            raise ArithmeticFailure(Status.NONFINITE_INPUT, f"{self.method} solve", self.fmt)
        scales[scales == 0] = 1.0
        block /= scales  # so that no norm under- or overflows
        norms = np.sqrt((block**2).sum(axis=0))
        pace = self._pace(lambda sizes: TOLERANCE * norms.max(initial=0.0))
        found = self._run(
            self._times,
            block,
            self.preconditioner.apply,
            stop=Residual(TOLERANCE),
            most=MOST_ITERATIONS,
            watch=pace,
            replaces=False,
        )
        self.iterations += found.iterations
        if not found.converged:
            status = FAILURES.get(found.status, Status.SLOW_CONVERGENCE)
            raise ArithmeticFailure(status, f"{self.method} solve", self.fmt)
        return np.asarray(found.X * scales)

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        """One run to the target, judged by residuals in twice the precision."""
        A, norm, B, target = given[:4]
        if transpose and not self._definite:
            return self._transposed.refined(given)
        if (
            A.fmt is not FP64
            or 0 in B.shape
            or not sparse.issparse(rows := getattr(A, "array", None))
        ):
            return None
        block = np.asfortranarray(B if B.ndim == 2 else B[:, None])
        largest = np.abs(block).max(axis=0)
        rule = BackwardError(target, norm, largest)

        def allowed(sizes: Sizes) -> float:
            """The 2-norm at which the max norm is about what the rule allows."""
            most = target * (norm * sizes.x_largest + largest.max())
            return float((most * sizes.two / np.maximum(sizes.largest, 1e-300)).min())

        found = self._run(
            self._times,
            block,
            self.preconditioner.apply,
            stop=rule,
            most=MOST_ITERATIONS,
            watch=self._pace(allowed),
            norm=norm,
        )
        self.iterations += found.iterations
        if found.status in (KrylovStatus.STOPPED, KrylovStatus.ITERATION_LIMIT):
            raise ArithmeticFailure(Status.SLOW_CONVERGENCE, f"{self.method} solve", self.fmt)
        if found.status in FAILURES:
            raise ArithmeticFailure(FAILURES[found.status], f"{self.method} solve", self.fmt)
        X = found.X
        R = exact.residual(rows, X, block)
        sizes = norm * np.abs(X).max(axis=0) + largest
        errors = np.abs(R).max(axis=0) / np.where(sizes > 0, sizes, 1.0)
        if not (errors <= target).all():
            return None
        stretch = float((norm * np.abs(X).max(axis=0) / np.where(largest > 0, largest, 1.0)).max())
        shape = B.shape
        return AtOnce(
            X.reshape(shape, order="F"),
            R.reshape(shape, order="F"),
            errors,
            float(errors.max()),
            0.0,
            stretch,
            [],
        )

    def _pace(self, allowed: Callable[[Sizes], float]) -> Pace:
        granted, before = self.granted, self.iterations
        if granted is None:
            return Pace(allowed, lambda expected: expected <= MOST_ITERATIONS)
        return Pace(allowed, lambda expected: granted(before + expected))

    def to(self, fmt: FloatFormat) -> IterativeFactors:
        """The same: operands and results are in FP64, whatever the format of storage."""
        return self


class Pace:
    """Watches whether a run converges in as many iterations as are granted.

    `allowed` tells the 2-norm that the residual is to reach; `granted` judges the iterations that
    are expected in all.
    """

    def __init__(self, allowed: Callable[[Sizes], float], granted: Granted) -> None:
        self._allowed, self._granted, self._first = allowed, granted, math.nan

    def __call__(self, iteration: int, sizes: Sizes) -> bool:
        size = float(sizes.two.max(initial=0.0))
        if iteration == 1:
            self._first = size
        if iteration < CHECK_AFTER:
            return False
        target = self._allowed(sizes)
        if not (size > target > 0):
            return False
        done = math.log(self._first / size) if size > 0 else math.inf
        expected = math.inf
        if done > 0:
            expected = 1 + (iteration - 1) * (done + math.log(size / target)) / done
        return not self._granted(expected)
