"""Our own engines: supernodal Cholesky, LDL' and LU, in FP32 and FP64.

``cpp/sparse/plan_view.hpp`` says how the work is divided. The structure of the factors is known
before the numbers: pivots are exchanged within dense blocks on the diagonal only.

cholesky
    ``A = L L'`` of symmetric positive definite matrices. Only the lower triangle is read.
ldl
    ``A = L D L'`` of symmetric matrices, D with blocks of order 1 and 2. Only the lower triangle is
    read. A is scaled by powers of two before.
lu
    On the pattern of A + A', after a matching that makes the diagonal large, and scaling.

In ldl and lu, pivots that are too small, sqrt(u) times the largest entry of the scaled matrix, are
replaced by this, as SuperLU_DIST does (Li & Demmel 2003): `Factors.replaced_pivots` counts them.
The factors are then those of a matrix nearby, and solutions need refinement.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.checks import require_square
from roundwise.backends.contract import ArithmeticFailure, AtOnce, Status, ToRefine, Vector
from roundwise.backends.engines.contract import Engine, Symbolic
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.engines.structure import (
    SymmetricPattern,
    balancing,
    is_structurally_singular,
    scaled_by,
    without_values,
)
from roundwise.backends.native.storage import DTYPES, finished, loaded, require_native_sparse
from roundwise.backends.permuted import PermutedFactors
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.machine.threads import get_num_threads, pass_threads

FAILURES = {1: Status.NOT_POSITIVE_DEFINITE, 2: Status.ZERO_PIVOT, 3: Status.OVERFLOW}
STOPPED = 4
"""What the kernel returns if it does not return factors; `Result` in ``cpp/sparse/kernels.hpp``."""

FASTEST = 2e11
"""Flops per second that a thread does at most."""

NAMES = {"cholesky": "Cholesky", "ldl": "LDL'", "lu": "LU"}

Index = NDArray[np.int32]


class SupernodalEngine(Engine):
    """One of the three factorizations."""

    orderings = ("natural", *(["metis"] if find_spec("pymetis") else []), "nd", "amd")
    formats = (FP32, FP64)

    def analyse(
        self, pattern: sparse.csr_array, ordering: str, orders: Orders | None = None
    ) -> SupernodalSymbolic:
        """`orders` has orders of this pattern that were found before."""
        return SupernodalSymbolic(pattern, self.name, ordering, orders)


class CholeskyEngine(SupernodalEngine):
    name = "cholesky"
    suits = "positive definite"


class LdlEngine(SupernodalEngine):
    name = "ldl"
    suits = "symmetric"


class LuEngine(SupernodalEngine):
    name = "lu"


class SupernodalSymbolic(Symbolic):
    """A pattern with its order, its supernodes, and the place of each entry in them."""

    def __init__(
        self, pattern: sparse.csr_array, kind: str, ordering: str, orders: Orders | None = None
    ) -> None:
        require_square(pattern.shape)
        self.kind, self.method, n = kind, f"{kind}/{ordering}", pattern.shape[0]
        self.depends_on_values = kind == "lu"  # by the matching
        self.pattern = without_values(pattern)
        self._symmetric = None if kind == "lu" else SymmetricPattern(pattern)
        if orders is None or orders.matched != (kind == "lu"):
            orders = Orders(pattern, matched=kind == "lu")
        matched = orders.rows
        self.symbolic = orders.symbolic(ordering)
        self.columns = self.symbolic.order
        self.rows = self.columns if matched is None else matched[self.columns]
        """Row k of the factors is this row of A, before pivots are exchanged."""
        self.plan = _kernels.SupernodalPlan(
            kind,
            self.symbolic,
            pattern.indptr.astype(np.int64, copy=False),
            pattern.indices.astype(np.int32, copy=False),
            _inverse(self.rows),
            _inverse(self.columns),
        )
        self.n = n

    def factorize(
        self, values: NDArray[Any], fmt: FloatFormat, seconds: float = math.inf
    ) -> SupernodalFactors:
        """Factors of the matrix with these entries.

        An `ArithmeticFailure` with `Status.STOPPED` after about so many seconds; at once where the
        symbolic counts tell that no machine is that fast.
        """
        if self.plan.flops > FASTEST * get_num_threads() * seconds:
            raise ArithmeticFailure(Status.STOPPED, self.method, fmt)
        dtype = DTYPES[fmt]
        values = np.ascontiguousarray(values, dtype=dtype)
        entries = self.pattern.nnz
        if values.shape != (entries,):
            raise ValueError(
                f"values have shape {values.shape}, the pattern has {entries} entries; pass one "
                "number for each"
            )
        if self._symmetric:
            self._symmetric.require_symmetric(values, self.method, fmt)
        scales, tiny = None, 0.0
        if self.kind != "cholesky":
            scales = balancing(self.pattern, values, self.kind == "ldl")
            if scales is not None:
                values = scaled_by(self.pattern, values, scales)
            tiny = math.sqrt(fmt.unit_roundoff) * float(np.abs(values).max(initial=0.0))
        storage = np.empty(self.plan.stored, dtype=dtype)
        pivots = np.empty(self.n, dtype=np.int32)
        result, column, replaced = _kernels.supernodal_factorize(
            self.plan, values, storage, pivots, tiny, seconds, get_num_threads()
        )
        if result == STOPPED:
            raise ArithmeticFailure(Status.STOPPED, self.method, fmt)
        kernel = f"sparse {NAMES[self.kind]} factorization"
        if replaced and is_structurally_singular(self.pattern, values):
            raise ArithmeticFailure(Status.ZERO_PIVOT, kernel, fmt)
        if result in FAILURES:
            raise ArithmeticFailure(FAILURES[result], kernel, fmt, int(self.columns[column]))
        return SupernodalFactors(fmt, self, storage, pivots, scales, replaced)


def _inverse(order: Index) -> Index:
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


class SupernodalFactors(PermutedFactors):
    """Factors in dense panels; `replaced_pivots` were too small."""

    is_sparse = True

    def __init__(
        self,
        fmt: FloatFormat,
        analysis: SupernodalSymbolic,
        storage: NDArray[Any],
        pivots: Index,
        scales: tuple[Index, Index] | None,
        replaced: int,
    ) -> None:
        self.fmt, self.method, self.shape = fmt, analysis.method, (analysis.n,) * 2
        self.entries, self.flops = int(analysis.plan.entries), analysis.plan.flops
        self.replaced_pivots = replaced
        self._analysis, self._storage, self._pivots = analysis, storage, pivots
        self._scales, self._kind = scales, analysis.kind
        self._around = analysis.rows, analysis.columns

    def _solve_factored(self, b: Vector, transpose: bool) -> Vector:
        first, last = self._exponents[::-1] if transpose else self._exponents
        y = loaded(b if first is None else np.ldexp(b, first[:, None]), self.fmt)
        _kernels.supernodal_solve(
            self._analysis.plan, self._storage, self._pivots, y, transpose, get_num_threads()
        )
        if last is not None:
            y = np.ldexp(y.astype(np.float64), last[:, None])
        return finished(y, "sparse triangular solve", self.fmt, b)

    def refined(self, given: ToRefine, transpose: bool = False) -> AtOnce | None:
        A: Any = given.A
        if transpose or self._scales is not None or A.is_complex or A.fmt is not FP64:
            return None
        rows = A.array
        _, norm, B, target, most_steps, _ = given
        if rows.indices.dtype != np.int32 or 0 in B.shape:
            return None
        X, R, errors = np.empty_like(B), np.empty_like(B), np.empty(B[:1].size)
        factors: tuple[Any, ...] = self._analysis.plan, self._storage, self._pivots, *self._around
        matrix = rows.indptr, rows.indices, rows.data, norm
        rest = target, most_steps, B, X, R, errors, get_num_threads(), pass_threads(rows.nnz)
        found = _kernels.supernodal_refine(*(*factors, *matrix, *rest))
        return AtOnce(X, R, errors, *found[1:]) if found[0] else None

    @cached_property
    def _exponents(self) -> tuple[Index | None, Index | None]:
        """Those of the scaling of rows and columns, in the order of the factors."""
        if self._scales is None:
            return None, None
        rows, columns = self._scales
        return rows[self._analysis.rows], columns[self._analysis.columns]

    def to(self, fmt: FloatFormat) -> SupernodalFactors:
        if fmt == self.fmt:
            return self
        require_native_sparse(fmt)
        with np.errstate(over="ignore"):
            storage = self._storage.astype(DTYPES[fmt])
        rounded = SupernodalFactors(
            fmt, self._analysis, storage, self._pivots, self._scales, self.replaced_pivots
        )
        kernel = f"rounding the {NAMES[self._kind]} factorization"
        if not np.isfinite(storage).all():
            raise ArithmeticFailure(Status.OVERFLOW, kernel, fmt)
        if not (rounded._diagonal != 0)[self._alone].all():
            raise ArithmeticFailure(Status.ZERO_PIVOT, kernel, fmt)
        return rounded

    @property
    def _alone(self) -> NDArray[np.bool_]:
        """Which pivots are not part of a 2 x 2 one."""
        if self._kind != "ldl":
            return np.ones(self.shape[0], dtype=bool)
        first = self._pivots < 0
        return ~(first | np.concatenate(([False], first[:-1])))

    @cached_property
    def _moved(self) -> Index:
        """Row k of the factors was this one before pivots were exchanged."""
        if self._kind == "cholesky":
            return np.arange(self.shape[0], dtype=np.int32)
        panels = self._analysis.plan.panels
        first = np.repeat(panels[:, 0], panels[:, 1])
        within = np.where(self._pivots < 0, ~self._pivots, self._pivots)
        return np.asarray(first + within, dtype=np.int32)

    @cached_property
    def perm(self) -> Index:
        return self._analysis.rows[self._moved]

    @cached_property
    def order(self) -> Index:
        return self.perm if self._kind == "ldl" else self._analysis.columns

    @cached_property
    def _diagonal(self) -> NDArray[Any]:
        """The numbers on the diagonals of the panels' blocks: of L (cholesky), D or U."""
        first, width, height, _, place = self._analysis.plan.panels.T
        # Column j of a panel has its diagonal entry at place + (j - first) (height + 1).
        places = np.repeat(height + 1, width)
        places *= np.arange(self.shape[0])
        places += np.repeat(place - first * (height + 1), width)
        return np.asarray(self._storage[places])

    @property
    def pivots(self) -> NDArray[np.float64]:
        rows, columns = self._exponents
        pivots = np.asarray(np.abs(self._diagonal), dtype=np.float64)
        if rows is None or columns is None:
            return pivots
        return np.asarray(np.ldexp(pivots, -(rows[self._moved] + self._column_exponents)))

    @property
    def _column_exponents(self) -> Index:
        columns = self._exponents[1]
        assert columns is not None
        return columns[self._moved] if self._kind == "ldl" else columns

    @property
    def L(self) -> sparse.csc_array:
        return self._undone(self._assembled(self._lower), of_upper=False)

    @property
    def U(self) -> sparse.csc_array:
        if self._kind == "cholesky":
            return self.L.T.tocsc()
        if self._kind == "lu":
            return self._undone(self._assembled(self._upper).T.tocsc(), of_upper=True)
        off = np.where(self._pivots < 0, self._below_diagonal, 0.0)
        D = sparse.dia_array(
            ([off, self._diagonal.astype(np.float64), np.roll(off, 1)], [-1, 0, 1]), self.shape
        )
        return self._undone(sparse.csc_array(D @ self._assembled(self._lower).T), of_upper=True)

    @property
    def _below_diagonal(self) -> NDArray[np.float64]:
        """The entries below the diagonal, where D has those of 2 x 2 pivots."""
        below = np.zeros(self.shape[0])
        for first, width, height, _, place in self._analysis.plan.panels:
            block = self._storage[place : place + width * height].reshape(width, height)
            below[first : first + width - 1] = np.diagonal(block, 1)[: width - 1]
        return below

    def _undone(self, factor: sparse.csc_array, of_upper: bool) -> sparse.csc_array:
        """A factor of the scaled matrix as that of the matrix itself; L keeps its unit diagonal."""
        rows, columns = self._exponents
        if rows is None or columns is None:
            return factor
        by_row = rows[self._moved]
        by_column = self._column_exponents if of_upper else -by_row
        coo = factor.tocoo()
        values = np.ldexp(coo.data, -(by_row[coo.row] + by_column[coo.col]))
        return sparse.csc_array((values, (coo.row, coo.col)), shape=self.shape)

    def _lower(self, panel: NDArray[np.int64], final: Index) -> tuple[Index, NDArray[Any]]:
        """Rows of L in the columns of a panel, and the numbers there."""
        first, width, height, start, place = panel
        rows = self._analysis.symbolic.rows[start : start + height]
        block = self._storage[place : place + width * height].reshape(width, height).T
        block = np.tril(block.astype(np.float64))
        if self._kind != "cholesky":
            on = np.arange(width)
            block[on, on] = 1.0
            pairs = np.flatnonzero(self._pivots[first : first + width] < 0)
            block[pairs + 1, pairs] = 0.0
        return np.concatenate((rows[:width], final[rows[width:]])), block

    def _upper(self, panel: NDArray[np.int64], final: Index) -> tuple[Index, NDArray[Any]]:
        """Columns of U in the rows of a panel, and the numbers there, transposed."""
        _, width, height, start, place = panel
        rows = self._analysis.symbolic.rows[start : start + height]
        middle = place + width * height
        block = self._storage[place:middle].reshape(width, height)[:, :width]
        right = self._storage[middle : middle + width * (height - width)]
        right = right.reshape(width, height - width).T
        return rows, np.concatenate((np.tril(block), right)).astype(np.float64)

    def _assembled(self, part: Any) -> sparse.csc_array:
        """A lower triangle from the parts of all panels."""
        final, indices, indptr, values = _inverse(self._moved), [], [0], []
        for panel in self._analysis.plan.panels:
            rows, block = part(panel, final)
            for column in range(panel[1]):
                indices.append(rows[column:])
                values.append(block[column:, column])
                indptr.append(indptr[-1] + len(rows) - column)
        if not values:
            return sparse.csc_array(self.shape)
        arrays = np.concatenate(values), np.concatenate(indices), np.array(indptr)
        lower = sparse.csc_array(arrays, shape=self.shape)
        lower.sort_indices()
        return lower
