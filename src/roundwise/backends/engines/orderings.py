"""Fill-reducing orders of sparse matrices, and what each makes of the factors.

All work on the pattern of A + A', and permute rows and columns alike.

Orderings
---------
amd
    Approximate minimum degree (Amestoy, Davis & Duff 1996), compiled with the library.
nd
    Nested dissection (George 1973), compiled with the library. It takes ten times as long as amd.
    Factors of 7-point cubes need 0.7 (30^3) and 0.5 (40^3) of amd's flops, those of other patterns
    between 0.4 and 1.5: `predicted` tells.
metis
    Nested dissection by METIS; needs ``pymetis``. Mostly a tenth to a fifth fewer flops than nd.
natural
    The order in which the matrix comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise._kernels import SparsePattern, SparseSymbolic
from roundwise.backends.checks import require_square
from roundwise.backends.engines.structure import Lines, has_strong_diagonal, matched_rows

Order = NDArray[np.int32]
"""Row and column k of the factors are row and column ``order[k]`` of A."""


def symmetric_pattern(A: sparse.csr_array | sparse.csc_array) -> SparsePattern:
    """The pattern of A + A' without its diagonal; stored zeros belong to it."""
    require_square(A.shape)
    return _kernels.sparse_pattern(A.indptr, A.indices)


def metis(pattern: SparsePattern) -> Order:
    """Nested dissection by METIS."""
    try:
        import pymetis
    except ModuleNotFoundError as error:
        raise ImportError(
            "pymetis is needed for METIS; install roundwise[metis], or use nd"
        ) from error
    if len(pattern.indices) == 0:  # METIS asks for at least one edge
        return natural(pattern)
    graph = pymetis.CSRAdjacency(pattern.indptr, pattern.indices)
    order, _ = pymetis.nested_dissection(graph)
    return np.asarray(order, dtype=np.int32)


def natural(pattern: SparsePattern) -> Order:
    """The rows as they come."""
    return np.arange(pattern.n, dtype=np.int32)


ORDERINGS: dict[str, Callable[[SparsePattern], Order]] = {
    "amd": _kernels.sparse_amd,
    "nd": _kernels.sparse_dissect,
    "metis": metis,
    "natural": natural,
}


def predicted(pattern: SparsePattern, order: Order) -> tuple[float, float]:
    """Entries of L (with its diagonal) and flops of a Cholesky factorization, exactly.

    The flops are the sum of the squares of the columns' entries; LU needs twice as many. A matrix
    whose pivots stay on the diagonal has U with the pattern of L'.
    """
    return _kernels.sparse_counts(pattern, order)


def analyse(pattern: SparsePattern, order: Order) -> SparseSymbolic:
    """Supernodes, their rows and their tree, in an order with the same fill as the given one.

    `SparseSymbolic` has the fields of ``Symbolic`` in ``cpp/sparse/symbolic.hpp`` as read-only
    arrays: supernode s holds columns ``first[s]`` to ``first[s + 1] - 1`` of L, and its rows are
    ``rows[start[s]:start[s + 1]]``.
    """
    return _kernels.sparse_analyse(pattern, order)


NARROW, FEW_FLOPS = 2.0, 6.0
"""In a narrow band, at least one place in so many is filled, and flops are at most so many for each
entry: orders and matchings take longer to find than any engine takes to factorize."""


def banded_counts(A: sparse.csr_array) -> tuple[float, float] | None:
    """What LU takes in the order in which A comes, if that is a narrow band; else None.

    With rows that reach l_i places to the left of the diagonal and r_i to the right, L and U have
    ``n + sum l_i`` and ``n + sum r_i`` places (their mean counts), and the flops are ``sum (1 +
    l_i) (1 + r_i)``, in the units of `predicted`. It takes a glance at the first and last entry of
    each row, whose columns must be sorted; an empty row is none that counts.
    """
    n = A.shape[0]
    if A.nnz == 0 or not (np.diff(A.indptr) > 0).all():
        return None
    rows = np.arange(n)
    left = np.maximum(rows - A.indices[A.indptr[:-1]], 0)
    right = np.maximum(A.indices[A.indptr[1:] - 1] - rows, 0)
    reach = float(left.sum() + right.sum())
    flops = float(np.dot(1.0 + left, 1.0 + right))
    if n + reach > NARROW * A.nnz or flops > FEW_FLOPS * A.nnz:
        return None
    return n + reach / 2, flops


ND_FROM = 1.5e10
"""Nested dissection is tried where AMD's order leads to this many flops: half a second and more."""


@dataclass(frozen=True, eq=False)
class Orders:
    """The orders of one matrix, each found once: what was found to choose serves to factorize.

    `matched`: rows are exchanged before such that the diagonal is large, as static pivoting asks
    for; `rows` says how, and is None if they stay where they are. `strong`: whether the diagonal is
    strong already, if that is known.
    """

    A: sparse.csr_array
    matched: bool = False
    strong: bool | None = None

    @cached_property
    def rows(self) -> Order | None:
        return matched_rows(Lines(self.A)) if self.matched and not self.strong else None

    @cached_property
    def pattern(self) -> SparsePattern:
        return symmetric_pattern(self.A if self.rows is None else self.A[self.rows])

    @cached_property
    def _found(self) -> dict[str, Order]:
        return {}

    def order(self, ordering: str) -> Order:
        if ordering not in self._found:
            self._found[ordering] = ORDERINGS[ordering](self.pattern)
        return self._found[ordering]

    def know(self, pattern: SparsePattern, ordering: str, order: Order) -> None:
        """The pattern, rows where they are, and one of its orders, as found elsewhere."""
        self.__dict__["pattern"] = pattern
        self._found[ordering] = order

    def know_of(self, others: Orders) -> None:
        """Take over what was found of a matrix with the same pattern, rows where they are."""
        self.__dict__["pattern"] = others.pattern
        self._found.update(others._found)
        self._analysed.update(others._analysed)

    @cached_property
    def _analysed(self) -> dict[str, SparseSymbolic]:
        return {}

    def symbolic(self, ordering: str) -> SparseSymbolic:
        """The cached analysis in this order: counts, which the factorization uses again."""
        if ordering not in self._analysed:
            self._analysed[ordering] = analyse(self.pattern, self.order(ordering))
        return self._analysed[ordering]

    def only(self, ordering: str) -> Orders:
        """These with one order alone, so that what finding the others took is not kept."""
        kept = replace(self)
        kept.__dict__["rows"] = self.rows
        kept._analysed[ordering] = self.symbolic(ordering)
        return kept

    @cached_property
    def dissected(self) -> tuple[float, float]:
        """Entries and flops in the order of nested dissection."""
        return predicted(self.pattern, self.order("nd"))

    @property
    def stored(self) -> tuple[float, float]:
        """Numbers in the panels of L in AMD's order, and about as many as there will be in that of
        nested dissection; 0 for what was not counted."""
        if (symbolic := self._analysed.get("amd")) is None:
            return 0.0, 0.0
        widths = np.diff(symbolic.first).astype(np.float64)
        stored = symbolic.stored - float((widths * (widths - 1)).sum()) / 2  # upper triangles
        dissected = self.dissected[0] if self.counts["nd_flops"] else 0.0
        return stored, dissected * stored / symbolic.entries

    @cached_property
    def counts(self) -> dict[str, float]:
        """The features of that name: see `roundwise.features.probe.counts`."""
        banded = banded_counts(self.A) if self.matched else None
        if banded is not None:
            return _counted(False, *banded)
        strong = self.strong
        if strong is None:
            strong = has_strong_diagonal(self.A, symmetric=not self.matched)
        static = strong or self.rows is not None
        entries = flops = nd_flops = 0.0
        if static or not self.matched:  # else pivots leave the diagonal, and counts say nothing
            symbolic = self.symbolic("amd")
            entries, flops = float(symbolic.entries), float(symbolic.flops)
        if flops >= ND_FROM:
            nd_flops = self.dissected[1]
        return _counted(static, entries, flops, nd_flops)


def _counted(static: bool, entries: float, flops: float, nd_flops: float = 0.0) -> dict[str, float]:
    return {
        "static_pivots": float(static),
        "factor_entries": entries,
        "factor_flops": flops,
        "nd_flops": nd_flops,
    }
