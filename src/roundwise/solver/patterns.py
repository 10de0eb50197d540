"""`KnownPatterns`: what a `Solver` keeps of sparse patterns, so that each is analysed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.backends import Analysis
from roundwise.solver.express_sparse import SparseFactors
from roundwise.solver.system import System

MOST = 3
"""How many patterns are kept; their analyses take about as much memory as the matrices do."""

SAMPLE = 64
"""About how many indices tell most patterns apart."""


@dataclass(frozen=True, eq=False)
class _Pattern:
    """A pattern in arrays of its own, which nobody changes, and its analyses by method."""

    kind: type[sparse.csr_array]  # real matrices, or real forms of complex ones
    shape: tuple[int, int]
    indptr: NDArray[Any]
    indices: NDArray[Any]
    analyses: dict[str, Analysis] = field(default_factory=dict)

    def is_that_of(self, A: sparse.csr_array) -> bool:
        step = max(1, A.nnz // SAMPLE)
        return (
            self.kind is type(A)
            and self.shape == A.shape
            and len(self.indices) == len(A.indices)
            and np.array_equal(self.indices[::step], A.indices[::step])
            and np.array_equal(self.indptr, A.indptr)
            and np.array_equal(self.indices, A.indices)
        )

    def with_values_of(self, A: sparse.csr_array) -> sparse.csr_array:
        same = self.kind((A.data, self.indices, self.indptr), shape=A.shape)
        same.has_canonical_format = True  # as that of every `System`
        return same


class KnownPatterns:
    """The patterns seen last. Threads may share it, and a forked process goes on with it.

    An analysis serves one solve at a time: while a thread has borrowed that of a pattern, others
    with the same pattern make their own.
    """

    def __init__(self) -> None:
        # The last one first. No lock: `remove` and `insert` are one step each for other threads.
        self._patterns: list[_Pattern] = []
        self.factors: tuple[SparseFactors, ...] = ()
        """Those of the last systems that were solved at once, each with a pattern of its own."""

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownPatterns, ()  # a copy, or another process, analyses for itself

    def __len__(self) -> int:
        return len(self._patterns)

    def keep(self, factors: SparseFactors | None) -> None:
        """Put these first, in place of others with as many rows and entries."""
        if factors is None:
            return
        size = factors.lu.n, factors.lu.stored
        others = (one for one in self.factors if (one.lu.n, one.lu.stored) != size)
        self.factors = (factors, *others)[:MOST]

    @contextmanager
    def borrowed(self, matrix: System) -> Iterator[tuple[System, dict[str, Analysis]]]:
        """The matrix, and the analyses of its pattern: to be used, and to be added to.

        A sparse matrix comes back with index arrays that its caller cannot change.
        """
        if not matrix.is_sparse:
            yield matrix, {}
            return
        pattern = self._taken(matrix.A)
        try:
            yield replace(matrix, A=pattern.with_values_of(matrix.A)), pattern.analyses
        finally:
            self._patterns.insert(0, pattern)
            del self._patterns[MOST:]

    def _taken(self, A: sparse.csr_array) -> _Pattern:
        found = next((p for p in tuple(self._patterns) if p.is_that_of(A)), None)
        if found is not None:
            with suppress(ValueError):  # another thread was faster
                self._patterns.remove(found)
                return found
        return _Pattern(type(A), A.shape, A.indptr.copy(), A.indices.copy())
