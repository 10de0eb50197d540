"""The probe of a system: cheap features that tell which other systems it is like.

Of a dense matrix nothing here reads more than 64 rows (O(64^2 n) work beside O(n^3) for a
factorization), but for `looks_positive_definite`, which compares A with its transpose and gives up
at the first difference. Of a sparse one it is no more than a pass over the pattern. Of a matrix on
a GPU nothing is read back but the inner products of 64 rows, their diagonal entries and lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

import roundwise._kernels as _kernels
from roundwise.backends.arrays import array_module, device_of, on_host
from roundwise.backends.cuda.residual import probe_rows
from roundwise.backends.engines import suits_symmetric_mode
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.engines.structure import has_strong_diagonal
from roundwise.backends.native.dense import has_own_lu, is_symmetric
from roundwise.backends.native.structured import structured_method_and_diagonals
from roundwise.machine.threads import factorization_threads, pass_threads

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

PROBE = (
    "n",
    "entries",
    "sparse",
    "symmetric_pattern",
    "looks_positive_definite",
    "diagonal_share",
    "coherence",
    "remainder",
    "columns",
    "symmetric",
    "strong_diagonal",
    "static_pivots",
    "banded",
    "triangular",
    "factor_entries",
    "factor_flops",
    "nd_flops",
    "row_squares",
    "diagonals",
)
"""The features that the front door decides by."""

FLOORS = {"n": 1.0, "entries": 1.0, "coherence": 0.01, "remainder": 1e-8}
FLOORS |= {"factor_entries": 1.0, "factor_flops": 1.0, "nd_flops": 1.0, "row_squares": 1.0}
FLOORS |= {"diagonals": 1.0}
"""Features that a context has as logarithms, with the smallest value that counts."""

CHOLESKY_FROM = 700
"""Below this n, what Cholesky gains over LU is no more than what comparing A with its transpose
takes. A price, in unknowns: ``python benchmarks/factorization_rates.py`` times Cholesky and LU."""

COMPLEX_CHOLESKY_FROM = 1200
"""The least n for a complex A, beside LAPACK's Cholesky and our LU in fp32."""

TINY = 128
"""The least n where LU is LAPACK's: below, it does not take long enough to look."""

BLOCK = 128
"""Rows of a complex A that are compared with columns at a time: they stay in the cache."""

BLOCKS_FROM = 1000
"""Below this n a block saves nothing that finding it would not cost."""

ROWS = 64
"""How many rows, evenly spaced, stand for all."""

SMALLEST_REMAINDER = 1e-8

SAFE_EXPONENT = 200
"""A fact: squares of numbers between 2**-200 and 2**200, and sums of such squares, are in range."""


def probe(problem: Any, names: Collection[str]) -> dict[str, float]:
    """The features of `PROBE` with these names, and those that are computed together with them."""
    found: dict[str, float] = {}
    for name in names:
        if name not in found:
            found |= GROUPS[name](problem)
    return found


def cholesky_from(is_complex: bool = False) -> int:
    """The smallest n for which a symmetric A is looked for, as Cholesky would gain time."""
    own = COMPLEX_CHOLESKY_FROM if is_complex else CHOLESKY_FROM
    return own if has_own_lu() else TINY


def looks_positive_definite(A: Any) -> bool:
    """Whether a dense real A, if it is large enough, is symmetric with a positive diagonal.

    In the middle row, ``a_ij**2 <= a_ii a_jj`` must hold, as it does if A is positive definite:
    most symmetric matrices that are not show it there, and Cholesky need not be tried.
    """
    if len(A) < cholesky_from():
        return False
    diagonal, middle = np.diagonal(A), len(A) // 2
    row = A[middle]
    positive = bool((diagonal > 0).all() and (row * row <= diagonal[middle] * diagonal).all())
    return positive and is_symmetric(A)


def sizes(problem: Any) -> dict[str, float]:
    """Unknowns, stored entries (n^2 for a dense A), right-hand sides, and whether A is sparse."""
    found = problem.n, problem.A.size, problem.b[0].size, problem.is_sparse
    return dict(zip(("n", "entries", "columns", "sparse"), map(float, found), strict=True))


def symmetric_pattern(problem: Any) -> dict[str, float]:
    """1 if a sparse matrix has a nearly symmetric pattern and few zeros on the diagonal, else 0."""
    found = problem.is_sparse and suits_symmetric_mode(problem.A)
    return {"symmetric_pattern": float(found)}


def structure(problem: Any) -> dict[str, float]:
    """The features that decide which methods fit.

    symmetric
        1 if A equals its transpose, or its conjugate transpose if it is complex; of a dense A only
        asked where Cholesky would gain time.
    looks_positive_definite
        1 if A is symmetric with a positive diagonal.
    strong_diagonal
        1 if each diagonal entry of a sparse A is large enough, beside its row and its column, for
        pivots to stay there (`structure.has_strong_diagonal`).
    """
    if problem.is_sparse:
        A = problem.A
        symmetric = _kernels.sparse_is_symmetric(A.indptr, A.indices, A.data)
        strong = has_strong_diagonal(A, symmetric)
        positive = bool((A.diagonal() > 0).all())
    elif problem.A.dtype.kind == "c":
        large = len(problem.A) >= cholesky_from(is_complex=True)
        positive = large and _has_positive_diagonal(problem.A)
        symmetric, strong = positive and _is_hermitian(problem.A), False
    else:
        positive = symmetric = looks_positive_definite(problem.A)
        strong = False
    return {
        "symmetric": float(symmetric),
        "looks_positive_definite": float(symmetric and positive),
        "strong_diagonal": float(strong),
    }


def _has_positive_diagonal(A: Complex) -> bool:
    """Whether all entries of the diagonal are real and positive."""
    diagonal = np.diagonal(A)
    return bool((diagonal.real > 0).all()) and not diagonal.imag.any()


def _is_hermitian(A: Complex) -> bool:
    """Whether A equals its conjugate transpose; most that do not show it in a few rows."""
    probes = {0, len(A) // 2, len(A) - 1}
    if not all(np.array_equal(A[i], A[:, i].conj()) for i in probes):
        return False
    blocks = range(0, len(A), BLOCK)
    return all(np.array_equal(A[i : i + BLOCK, i:], A[i:, i : i + BLOCK].conj().T) for i in blocks)


def zeros(problem: Any) -> dict[str, float]:
    """Where a dense real A has nothing but zeros.

    banded, triangular
        1 if A is a narrow band, or a triangle, perhaps with rows and columns in disorder.
    diagonals
        Of a band, those from the lowest to the highest that has a nonzero entry; else 0.
    """
    found, diagonals = None, 0
    if not problem.is_sparse and problem.A.dtype.kind == "f":
        found, diagonals = structured_method_and_diagonals(problem.A)
    return {
        "banded": float(found == "banded"),
        "triangular": float(found == "triangular"),
        "diagonals": float(diagonals),
    }


def row_squares(problem: Any) -> dict[str, float]:
    """The sum of the squares of the rows' entries: a bound of those of ``A'A``, hence of the fill
    of partial pivoting. Few dense rows make it large."""
    total = float(problem.n) ** 3
    if problem.is_sparse:
        total = float((np.diff(problem.A.indptr).astype(np.float64) ** 2).sum())
    return {"row_squares": total}


def counts(problem: Any) -> dict[str, float]:
    """Symbolic counts of a factorization, before any number is computed.

    static_pivots
        1 if the diagonal is strong, or is so once rows were matched: an LU factorization whose
        pivots stay there is worth trying. 0 in a narrow band, where matching takes too long.
    factor_entries, factor_flops
        Entries of Cholesky's L, and its flops, on the pattern of ``A + A'`` in the order of
        approximate minimum degree. Unless A is symmetric, its rows are matched before; 0 if it is
        not and they were not: pivots leave the diagonal then, and nobody knows. An unsymmetric A
        that is a narrow band is counted as it comes (`orderings.banded_counts`).
    nd_flops
        The flops in the order of nested dissection, where these are so many that they may pay
        for finding it; else 0.
    """
    if problem.is_sparse:
        known = structure(problem)
        strong = bool(known["strong_diagonal"])
        return Orders(problem.A, matched=not known["symmetric"], strong=strong).counts
    n = float(problem.n)
    entries, flops = n * (n + 1) / 2, n**3 / 3
    names = "static_pivots", "factor_entries", "factor_flops", "nd_flops"
    return dict(zip(names, (0.0, entries, flops, 0.0), strict=True))


def largest_block(problem: Any) -> float:
    """The largest diagonal block of the block triangular form, as a share of n.

    Rows are exchanged such that no diagonal entry is zero, which full diagonals need not; the
    strongly connected components of the graph of A are then the blocks (Duff & Reid 1978), and only
    these need be factorized. It does not depend on which exchange fills the diagonal. 1 where it is
    not looked for: in dense, small and structurally singular matrices, and in nearly symmetric
    patterns, which seldom have more than one block.
    """
    if not problem.is_sparse or problem.n < BLOCKS_FROM or suits_symmetric_mode(problem.A):
        return 1.0
    A = problem.A
    if not A.diagonal().all():
        rows = maximum_bipartite_matching(A, perm_type="row")
        if (rows < 0).any():
            return 1.0
        A = A[rows]
    _, labels = connected_components(A, directed=True, connection="strong")
    return float(np.bincount(labels).max() / problem.n)


@np.errstate(under="ignore")
def row_features(problem: Any) -> dict[str, float]:
    """Features from 64 rows (columns, where these are contiguous in memory).

    diagonal_share
        The median of ``|a_ii| / ||a_i||_2`` over the sampled rows: near 1 for a heavy diagonal.
    coherence
        For dense matrices, n times the mean squared cosine of the angles between sampled rows,
        columns scaled alike. Its expectation is ``n sum(s^4) / sum(s^2)^2 - 1`` for randomly
        rotated singular values s: 0 for orthogonal rows, 1 for Gaussian ones, ``log(kappa) - 1``
        for geometric s, n if one singular value outweighs all others. 0 for sparse ones.
    remainder
        For dense matrices, how far the sampled rows, scaled to length 1, are from the span of
        half of them: near 1 if all directions count alike, ``1 / kappa`` and less if few outweigh
        the others. Factors of unit roundoff u cannot tell apart what ends below u. Not below
        1e-8; 1 for sparse ones.
    """
    count = min(ROWS, problem.n)
    rows = np.arange(count) * problem.n // count
    coherence, remainder = 0.0, 1.0
    if problem.is_sparse:
        A = problem.A
        lengths = A.indptr[rows + 1] - A.indptr[rows]
        of_row = np.repeat(np.arange(count), lengths)  # of each entry of the sampled rows
        before = np.cumsum(lengths) - lengths
        entries = A.data[np.arange(len(of_row)) + np.repeat(A.indptr[rows] - before, lengths)]
        largest = np.zeros(count)
        np.maximum.at(largest, of_row, np.abs(entries))
        exponents = _shifts(largest)
        entries = np.ldexp(entries, exponents[of_row])
        norms = np.sqrt(np.bincount(of_row, entries * entries, count))
        diagonal = np.ldexp(A.diagonal()[rows], exponents)
    elif problem.A.dtype.kind == "c":
        return _complex_row_features(problem.A)
    else:
        lines = problem.A.T if problem.A.flags.c_contiguous else np.asfortranarray(problem.A)
        diagonal = lines[rows, rows]
        largest, norms, gram = _lines_of(lines, rows, rows)
        if (exponents := _shifts(largest)).any():
            lines = np.ldexp(lines[:, rows], exponents)
            diagonal = np.ldexp(diagonal, exponents)
            _, norms, gram = _lines_of(np.asfortranarray(lines), np.arange(count), rows)
        coherence, remainder = angles_from(gram, problem.n)
    shares = np.divide(np.abs(diagonal), norms, out=np.zeros(count), where=norms > 0)
    share = float(np.sort(shares)[count // 2])
    return {"diagonal_share": share, "coherence": coherence, "remainder": remainder}


GROUPS: dict[str, Callable[[Any], dict[str, float]]] = {
    name: group
    for group, names in {
        sizes: ("n", "entries", "columns", "sparse"),
        symmetric_pattern: ("symmetric_pattern",),
        structure: ("symmetric", "looks_positive_definite", "strong_diagonal"),
        zeros: ("banded", "triangular", "diagonals"),
        row_squares: ("row_squares",),
        counts: ("static_pivots", "factor_entries", "factor_flops", "nd_flops"),
        row_features: ("diagonal_share", "coherence", "remainder"),
    }.items()
    for name in names
}
"""The function that computes each feature of `PROBE`, together with others."""


def angles_from(gram: NDArray[Any], n: int) -> tuple[float, float]:
    """Coherence and remainder from the inner products of rows, a Fortran-ordered lower triangle.

    The products are overwritten.
    """
    count = len(gram)
    squares, remainder = _kernels.native_angles(gram)
    return n * squares / max(1, count * (count - 1) // 2), max(remainder, SMALLEST_REMAINDER)


def _shifts(largest: Array) -> NDArray[np.int32]:
    """Exponents that bring rows into range, which no feature sees, if squares could leave it."""
    exponents = np.asarray(-np.frexp(largest)[1], dtype=np.int32)
    if np.abs(exponents).max(initial=0) < SAFE_EXPONENT:
        exponents[:] = 0
    return exponents


def _lines_of(A: Array, lines: Any, diagonal: Any) -> tuple[Array, Array, Array]:
    """The largest entries of some columns, their norms, and their inner products (lower triangle).

    Rows are scaled to the same length first, as a unit of measurement says nothing of how hard a
    system is. The entries at `diagonal` do not count for it: where these are heavy, they are to
    stay so.
    """
    count = len(lines)
    largest, norms, gram = np.empty(count), np.empty(count), np.empty((count, count), order="F")
    A = A.astype(np.float64, copy=False)
    _kernels.native_look(A, lines, diagonal, largest, norms, gram, factorization_threads())
    return largest, norms, gram


def _inner_products(parts: Array) -> Complex:
    """Inner products of all rows, in the lower triangle, from real and imaginary planes."""
    _, count, n = parts.shape
    gram = np.empty((2 * count, 2 * count), order="F")
    _kernels.native_gram(parts.reshape(2 * count, n).T, gram, pass_threads(parts.size))
    re, im, mixed = gram[:count, :count], gram[count:, count:], gram[count:, :count]
    products = np.empty((count, count), dtype=np.complex128, order="F")
    products.real, products.imag = re + im, mixed - mixed.T
    return products


@np.errstate(under="ignore")
def _complex_row_features(A: Complex) -> dict[str, float]:
    """Features from 64 rows of a C-ordered complex A whose entries are of moderate size."""
    count = min(ROWS, len(A))
    rows = np.arange(count) * len(A) // count
    sampled = A[rows]
    parts = np.empty((2, *sampled.shape))  # apart, as products are faster then
    parts[0], parts[1] = sampled.real, sampled.imag
    # Where sizes differ so much that squares vanish, the probe is coarse, and that is all.
    squares = parts[0] * parts[0]
    squares += parts[1] * parts[1]
    norms = np.sqrt(squares.sum(axis=1))
    own = np.arange(count), rows
    shares = np.divide(np.abs(sampled[own]), norms, out=np.zeros(count), where=norms > 0)
    squares[own] = 0.0
    weights = np.divide(1.0, norms, out=np.zeros(count), where=norms > 0)
    lengths = np.sqrt((weights * weights) @ squares)
    parts /= np.where(lengths > 0, lengths, lengths.max(initial=0.0) or 1.0)
    coherence, remainder = angles_from(_inner_products(parts), len(A))
    share = float(np.sort(shares)[count // 2])
    return {"diagonal_share": share, "coherence": coherence, "remainder": remainder}


def device_row_features(A: Any) -> dict[str, float]:
    """`row_features` of a dense matrix on a GPU, or in any array module, of moderate size."""
    n = len(A)
    count = min(ROWS, n)
    device = device_of(A)
    read = _read_rows(A, count) if device is None else probe_rows(device, A, count)
    if not np.isfinite(read).all():  # nothing is known of such rows
        return {"diagonal_share": 0.0, "coherence": float(n), "remainder": 0.0}
    coherence, remainder = angles_from(read[: count * count].reshape(count, count).copy("F"), n)
    sizes, lengths_of = read[count * count : -count], read[-count:]
    shares = np.divide(sizes, lengths_of, out=np.zeros(count), where=lengths_of > 0)
    share = float(np.sort(shares)[count // 2])
    return {"diagonal_share": share, "coherence": coherence, "remainder": remainder}


def _read_rows(A: Any, count: int) -> NDArray[np.float64]:
    """The numbers of the kernel `probe_rows`, for any array module."""
    xp, n = array_module(A), len(A)
    rows = np.arange(count) * n // count
    sampled = (A if A.flags.c_contiguous else A.T)[rows]
    squares = sampled * sampled
    norms = xp.sqrt(squares.sum(axis=1))
    diagonal = sampled[np.arange(count), rows]
    squares[np.arange(count), rows] = 0.0  # it does not count for the scale of a column
    weights = xp.where(norms > 0, 1.0 / xp.maximum(norms, np.finfo(np.float64).tiny), 0.0)
    lengths = xp.sqrt((weights * weights) @ squares)
    longest = lengths.max()
    scaled = sampled / xp.where(lengths > 0, lengths, xp.where(longest > 0, longest, 1.0))
    gram = (scaled @ scaled.T).reshape(-1)
    return on_host(xp.concatenate([gram, abs(diagonal), norms]))
