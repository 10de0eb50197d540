"""What is known of a system before any work: enough to tell which others it is like.

Nothing here looks at more than 64 rows, so that it costs O(64 n) beside an O(n^3) factorization.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.native_sparse import NONZERO_DIAGONAL, SYMMETRIC_PATTERN
from roundwise.solver.inputs import CheckedMatrix

Kind = Literal["dense", "positive definite", "sparse", "sparse unsymmetric"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def first_formats(kind: Kind) -> tuple[str, ...]:
    """The formats that may speed up a factorization of this kind, lowest first, and FP64."""
    return ("bf16", "fp32", "fp64") if kind == "dense" else ("fp32", "fp64")


ROWS = 64
"""How many rows, evenly spaced, stand for all."""

DENSE_SIZES = (500, 1000)
SPARSE_SIZES = (1_000, 5_000, 20_000)
SHARES = (0.3, 0.6, 0.9)
COHERENCES = (0.15, 2.5, 6.0, 11.0, 20.0, 60.0)
ROW_ENTRIES = (4.5, 6.0, 12.0, 40.0)


@dataclass(frozen=True)
class Context:
    """A system as a policy sees it.

    Attributes
    ----------
    kind : str
        ``"dense"``; ``"positive definite"`` (dense, tried by Cholesky); ``"sparse"`` with a
        (nearly) symmetric pattern, diagonal included; ``"sparse unsymmetric"``.
    n : int
    diagonal_share : float
        The median of ``|a_ii| / ||a_i||_2`` over the sampled rows: near 1 for a heavy diagonal.
    coherence : float
        For dense matrices, n times the mean squared cosine of the angle between successive
        sampled rows. Its expectation is ``n sum(s^4) / sum(s^2)^2 - 1`` for randomly rotated
        singular values s: 0 for orthogonal rows, 1 for Gaussian ones, ``log(kappa) - 1`` for
        geometric s, n if one singular value outweighs all others.
    entries : int
        Stored entries; n^2 for dense matrices.
    columns : int
        Right-hand sides.
    """

    kind: Kind
    n: int
    diagonal_share: float
    coherence: float
    entries: int
    columns: int = 1

    @property
    def is_sparse(self) -> bool:
        return self.kind.startswith("sparse")

    @property
    def bins(self) -> tuple[str, ...]:
        """The systems that count as alike, in words, from few that are very alike to many."""
        if self.is_sparse:
            structure = interval("entries per row", self.entries / self.n, ROW_ENTRIES)
        else:
            structure = interval("coherence", self.coherence, COHERENCES)
        share = interval("diagonal share", self.diagonal_share, SHARES)
        size = interval("n", self.n, SPARSE_SIZES if self.is_sparse else DENSE_SIZES)
        wide = f"{self.kind}, {structure}"
        return f"{wide}, {share}, {size}", f"{wide}, {share}", wide, self.kind

    @property
    def bin(self) -> str:
        return self.bins[0]

    @property
    def series(self) -> str:
        """Those of exactly this shape: steps of one Newton iteration, say."""
        shape = f"n = {self.n}, {self.entries} entries" if self.is_sparse else f"n = {self.n}"
        return f"{self.kind}, {shape}"


def interval(name: str, value: float, edges: tuple[float, ...]) -> str:
    """The interval between two edges that holds a value, in words."""
    place = bisect_right(edges, value)
    if place == len(edges):
        return f"{name} >= {edges[-1]:g}"
    if place == 0:
        return f"{name} < {edges[0]:g}"
    return f"{name} {edges[place - 1]:g} to {edges[place]:g}"


def context_of(matrix: CheckedMatrix, positive_definite: bool, columns: int = 1) -> Context:
    """What 64 rows tell (columns, where these are contiguous in memory)."""
    count = min(ROWS, matrix.n)
    rows = np.arange(count) * matrix.n // count
    if matrix.is_sparse:
        whole = matrix.A.diagonal()
        full = bool(np.count_nonzero(whole) >= NONZERO_DIAGONAL * matrix.n)
        symmetric = full and _has_symmetric_pattern(matrix.A, rows)
        kind: Kind = "sparse" if symmetric else "sparse unsymmetric"
        lines, coherence = matrix.A[rows], 0.0
        norms = np.sqrt(np.asarray(lines.multiply(lines).sum(axis=1)).ravel())
        diagonal, entries = whole[rows], matrix.A.nnz
    else:
        kind = "positive definite" if positive_definite else "dense"
        A = matrix.A if matrix.A.flags.c_contiguous else matrix.A.T
        lines = A[rows]
        norms = np.sqrt(np.einsum("ij,ij->i", lines, lines))
        diagonal, entries = lines[np.arange(count), rows], A.size
        coherence = _coherence(lines, norms)
    shares = np.divide(np.abs(diagonal), norms, out=np.zeros(count), where=norms > 0)
    share = float(np.sort(shares)[count // 2])
    return Context(kind, matrix.n, share, coherence, int(entries), columns)


def _coherence(lines: NDArray[np.float64], norms: NDArray[np.float64]) -> float:
    if len(lines) < 2:
        return 0.0
    products = np.einsum("ij,ij->i", lines[:-1], lines[1:])
    sizes = norms[:-1] * norms[1:]
    cosines = np.divide(products, sizes, out=np.zeros(len(products)), where=sizes > 0)
    return float(lines.shape[1] * np.mean(cosines * cosines))


def _has_symmetric_pattern(A: Any, rows: NDArray[np.intp]) -> bool:
    """Whether most of one off-diagonal entry per sampled row have a partner."""
    found = []
    for i in rows.tolist():
        columns = A.indices[A.indptr[i] : A.indptr[i + 1]]
        others = columns[columns != i]
        if len(others):
            j = others[len(others) // 2]
            found.append(i in A.indices[A.indptr[j] : A.indptr[j + 1]])
    return not found or sum(found) >= SYMMETRIC_PATTERN * len(found)
