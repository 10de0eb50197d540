"""What is known of a system before any work: enough to tell which others it is like.

Of dense matrices nothing here looks at more than 64 rows: O(64^2 n) work beside O(n^3) for a
factorization. Of sparse ones, it is no more than a pass over their pattern.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from roundwise.backends.engines import suits_symmetric_mode
from roundwise.solver.inputs import CheckedMatrix

Array = NDArray[np.float64]
Kind = Literal["dense", "positive definite", "sparse", "sparse unsymmetric"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def first_formats(kind: Kind) -> tuple[str, ...]:
    """The formats that may speed up a factorization of this kind, lowest first, and FP64."""
    return ("bf16", "fp32", "fp64") if kind == "dense" else ("fp32", "fp64")


ROWS = 64
"""How many rows, evenly spaced, stand for all."""

DENSE_SIZES = (600, 1500)
SPARSE_SIZES = (1_000, 5_000, 20_000)
SHARES = (0.3, 0.6, 0.9)
COHERENCES = (0.15, 2.5, 6.0, 11.0, 14.0, 17.0, 60.0)
REMAINDERS = (1e-6, 1e-4, 0.1)
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
        For dense matrices, n times the mean squared cosine of the angles between sampled rows,
        columns scaled alike. Its expectation is ``n sum(s^4) / sum(s^2)^2 - 1`` for randomly
        rotated singular values s: 0 for orthogonal rows, 1 for Gaussian ones, ``log(kappa) - 1``
        for geometric s, n if one singular value outweighs all others.
    entries : int
        Stored entries; n^2 for dense matrices.
    columns : int
        Right-hand sides.
    remainder : float
        For dense matrices, how far the sampled rows, scaled to length 1, are from the span of
        half of them: near 1 if all directions count alike, ``1 / kappa`` and less if few outweigh
        the others. What factors of unit roundoff u can tell apart ends near u. Not below 1e-8.
    """

    kind: Kind
    n: int
    diagonal_share: float
    coherence: float
    entries: int
    columns: int = 1
    remainder: float = 1.0

    @property
    def is_sparse(self) -> bool:
        return self.kind.startswith("sparse")

    @property
    def position(self) -> Array:
        """Where it is among systems of its kind, as a column."""
        place = self.n, self.diagonal_share, self.coherence, self.remainder, self.entries
        return position(self.kind, *np.array(place, dtype=np.float64)[:, None])

    @property
    def bin(self) -> str:
        """The systems that count as alike when a solver learns from its own solves, in words."""
        parts = [str(self.kind)]
        if self.is_sparse:
            parts.append(interval("entries per row", self.entries / self.n, ROW_ENTRIES))
        else:
            parts.append(interval("coherence", self.coherence, COHERENCES))
            parts.append(interval("remainder", self.remainder, REMAINDERS))
        parts.append(interval("diagonal share", self.diagonal_share, SHARES))
        parts.append(interval("n", self.n, SPARSE_SIZES if self.is_sparse else DENSE_SIZES))
        return ", ".join(parts)

    @property
    def series(self) -> str:
        """Those of exactly this shape: steps of one Newton iteration, say."""
        shape = f"n = {self.n}, {self.entries} entries" if self.is_sparse else f"n = {self.n}"
        return f"{self.kind}, {shape}"


def position(
    kind: Kind, n: Array, diagonal_share: Array, coherence: Array, remainder: Array, entries: Array
) -> Array:
    """Coordinates of systems, one column each: at a distance of 1 they are rather unlike.

    A coherence beyond 60 tells of singular values that outweigh all others; how far, the
    remainder says.
    """
    common = 2.0 * diagonal_share, 0.3 * np.log(n)
    if kind.startswith("sparse"):
        return np.array([np.log(np.maximum(entries, 1.0) / n), *common])
    decay = 1.6 * np.log1p(np.minimum(coherence, 60.0))
    return np.array([decay, 0.8 * np.log10(remainder), *common])


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
    coherence, remainder = 0.0, 1.0
    if matrix.is_sparse:
        kind: Kind = "sparse" if suits_symmetric_mode(matrix.A) else "sparse unsymmetric"
        bounds = matrix.A.indptr
        lines = [matrix.A.data[bounds[i] : bounds[i + 1]] for i in rows]
        norms = np.sqrt([line @ line for line in lines])
        diagonal, entries = matrix.A.diagonal()[rows], matrix.A.nnz
    else:
        kind = "positive definite" if positive_definite else "dense"
        A = matrix.A if matrix.A.flags.c_contiguous else matrix.A.T
        lines = A[rows]
        squares = lines * lines
        norms = np.sqrt(np.einsum("ij->i", squares))
        diagonal, entries = lines[np.arange(count), rows], A.size
        squares[np.arange(count), rows] = 0.0
        coherence, remainder = _angles(lines, squares, norms)
    shares = np.divide(np.abs(diagonal), norms, out=np.zeros(count), where=norms > 0)
    share = float(np.sort(shares)[count // 2])
    return Context(kind, matrix.n, share, coherence, int(entries), columns, remainder)


def _angles(lines: Array, squares: Array, norms: Array) -> tuple[float, float]:
    """Coherence and remainder of rows; `squares` are theirs, without those of the diagonal.

    Columns are scaled to the same length first, as a unit of measurement says nothing of how
    hard a system is. The diagonal does not count for it: where it is heavy, it is to stay so.
    """
    count, n = lines.shape
    weights = np.divide(1.0, norms, out=np.zeros(count), where=norms > 0)
    lengths = np.sqrt(np.einsum("i,ij->j", weights * weights, squares))
    scale = np.where(lengths > 0, lengths, lengths.max(initial=0.0) or 1.0)
    # Too small a product to wake the threads of SciPy's BLAS; NumPy's ``@`` would wake its own.
    gram = blas.dsyrk(1.0, (lines / scale).T, trans=1, lower=1)
    sizes = np.sqrt(np.diagonal(gram))
    sizes[sizes == 0] = 1.0
    gram /= sizes[:, None] * sizes
    below = np.tril(gram, -1)
    coherence = n * float(np.einsum("ij,ij->", below, below)) / max(1, count * (count - 1) // 2)
    factor, _, rank, _ = lapack.dpstrf(gram, lower=1)
    half = count // 2
    remainder = float(factor[half, half]) if half < rank else 0.0
    return coherence, max(remainder, 1e-8)
