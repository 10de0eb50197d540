"""The definitions of the features, and how they are computed and timed.

A feature is a float and never NaN: where it has no finite
float64 value (a singular A, an overflow) it is ``inf``. A sparse A stays sparse except in
`kappa_exact`. All but the condition numbers take a few passes over the entries of A or its factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, SupportsFloat

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.conditioning import SupportsSolve, condition_estimate
from roundwise.algorithms.scaling import shifted
from roundwise.backends import ArithmeticFailure, Backend, Factors, get_backend
from roundwise.exceptions import RoundwiseError, UnknownNameError
from roundwise.features import probe
from roundwise.formats import FP64, FloatFormat
from roundwise.problems import LinearSystem, Problem, Vector

# The paper's delta_c and delta_n, whose values it leaves open. No condition number is below 1.
# The smallest normal float64 (2.2e-308) only catches the zero matrix: a larger floor would hide
# that a small A underflows in a low format.
KAPPA_FLOOR = 1.0
NORM_FLOOR = float(np.finfo(np.float64).tiny)

# The largest n for which kappa_exact makes a sparse A dense (32 MB, some seconds).
KAPPA_EXACT_SPARSE_LIMIT = 2000


@dataclass(frozen=True)
class FeatureValue:
    """A feature of one problem, and the seconds it took to compute; ``float()`` works."""

    name: str
    value: float
    seconds: float

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Feature:
    """How to compute a feature: ``compute(problem)`` or ``compute(problem, factors)``.

    The features of a `group` are computed together, by one function that returns them all by name.
    The first that was asked for is charged the seconds; the others cost nothing more.

    Parameters
    ----------
    name : str
    compute : callable
        Of the problem, and of the factors if `needs_factors`.
    doc : str
        What it is, in words.
    needs_factors : bool
    group : str
        The features that are computed together.

    Examples
    --------
    >>> rw.features.FEATURES["n"].doc
    'number of unknowns'
    """

    name: str
    compute: Callable[..., Any]
    doc: str
    needs_factors: bool = False
    group: str = ""


def compute_features(
    problem: Problem, names: Iterable[str], factors: SupportsSolve | None = None
) -> dict[str, FeatureValue]:
    """Compute features of a problem, by keys of `FEATURES`, each timed on its own.

    Those with ``needs_factors`` take a factorization of ``problem.A`` in any format; what it cost
    is not in their seconds. `kappa_est` takes any object whose ``solve(b, transpose=False)``
    applies the inverse to a block of columns.

    Parameters
    ----------
    problem : Problem
    names : iterable of str
        Keys of `FEATURES`.
    factors : optional
        A factorization of ``problem.A``, for features that need one.

    Examples
    --------
    >>> values = rw.features.compute_features(rw.problems.poisson_2d(4), ["n", "norm_inf"])
    >>> {name: float(value) for name, value in values.items()}
    {'n': 16.0, 'norm_inf': 8.0}
    """
    if isinstance(names, str):
        raise TypeError(f"names is the text {names!r}; pass a list of names: [{names!r}]")
    features = []
    for name in names:  # all complaints before any work
        if name not in FEATURES:
            raise UnknownNameError("feature", name, list(FEATURES))
        features.append(FEATURES[name])
        if features[-1].needs_factors and factors is None:
            raise ValueError(f"{name} needs a factorization; pass factors, e.g. a Matrix's lu()")
    shape = getattr(factors, "shape", problem.A.shape)
    if shape != problem.A.shape:
        raise ValueError(f"factors are {shape}, A is {problem.A.shape}; pass the factors of A")
    values, start = {}, perf_counter()
    for name, value in _computed(problem, features, factors):
        values[name] = FeatureValue(name, value, perf_counter() - start)
        start = perf_counter()
    return values


def _computed(
    problem: Problem, features: Iterable[Feature], factors: SupportsSolve | None = None
) -> Iterator[tuple[str, float]]:
    """The features by name, each when it is asked for."""
    groups: dict[str, Any] = {}
    for feature in features:
        name, group = feature.name, feature.group
        if group in groups:
            found = groups[group][name]
        else:
            arguments = (problem, factors) if feature.needs_factors else (problem,)
            found = feature.compute(*arguments)
            if group:
                groups[group] = found
                found = found[name]
        value = float(found)
        if math.isnan(value):
            raise RoundwiseError(f"{name} is NaN; check that the factors are finite and of this A")
        yield name, value


def feature_numbers(
    problem: Problem, names: Sequence[str], arithmetic: str | Backend = "operation"
) -> dict[str, float]:
    """The values of `compute_with_factors`, without the seconds that a solve does not ask for."""
    features = [FEATURES[name] for name in names]
    if not any(feature.needs_factors for feature in features):
        return dict(_computed(problem, features))
    values = compute_with_factors(problem, names, arithmetic)
    return {name: float(value) for name, value in values.items()}


def log10_floored(value: SupportsFloat, floor: float) -> float:
    """``log10 max(value, floor)``; infinity stays infinity, NaN is refused."""
    number = float(value)
    if math.isnan(number) or not floor > 0:
        raise ValueError(f"log10 max({number}, {floor}) is undefined; pass a number, a floor > 0")
    return math.log10(max(number, floor))


def compute_with_factors(
    problem: Problem,
    names: Sequence[str],
    arithmetic: str | Backend = "operation",
    fmt: str | FloatFormat = FP64,
) -> dict[str, FeatureValue]:
    """The features, with a factorization if some need one.

    A native backend makes the factors itself, and the seconds of *each* feature that needs them
    include the factorization: they are what this feature alone would cost. For emulated arithmetic
    the operation backend makes them, and the seconds leave that out, as they say nothing about
    hardware. If A is singular in the format, those features are infinite, and their seconds are
    those of the failed factorization. Condition numbers beyond 1/u of the format are not seen.
    """
    rest = [name for name in names if name in FEATURES and FEATURES[name].needs_factors]
    values = compute_features(problem, [name for name in names if name not in rest])
    if rest:
        backend = get_backend(arithmetic)
        timed = backend.timed
        backend = backend if timed else get_backend("operation")
        start = perf_counter()
        try:
            factors = backend.matrix(problem.A, fmt).lu()
        except ArithmeticFailure:
            seconds = perf_counter() - start
            return values | {name: FeatureValue(name, math.inf, seconds) for name in rest}
        charged = perf_counter() - start if timed else 0.0
        for feature in compute_features(problem, rest, factors).values():
            values[feature.name] = replace(feature, seconds=feature.seconds + charged)
    return values


@np.errstate(over="ignore", under="ignore", divide="ignore")
def kappa_exact(problem: LinearSystem) -> float:
    """Condition number in the 2-norm, ``s_1 / s_n`` of the singular values; O(n^3).

    Infinite if a row, a column or the computed s_n is zero. The SVD errs by a multiple of
    ``unit_roundoff * s_1`` (Golub & Van Loan, Matrix Computations, section 8.6): beyond about
    1e15 the value tells no more than that it is large, and a singular A without zero rows and
    columns may give some 1e16.
    """
    A = problem.A
    if not isinstance(A, np.ndarray):
        if problem.n > KAPPA_EXACT_SPARSE_LIMIT:
            raise ValueError(
                f"kappa_exact would make a sparse matrix with n = {problem.n} dense, beyond "
                f"n = {KAPPA_EXACT_SPARSE_LIMIT}; use kappa_est with a factorization"
            )
        A = A.toarray()
    if not (_absolute_sums(A, 0).all() and _absolute_sums(A, 1).all()):
        return math.inf
    s = scipy.linalg.svdvals(_scaled_to_one(A), overwrite_a=True, check_finite=False)
    return float(s[0] / s[-1])


def kappa_est(problem: LinearSystem, factors: SupportsSolve) -> float:
    """Condition number in the 1-norm, estimated from a factorization by some ten solves.

    ``||A||_1 est(||A^-1||_1)``, a lower bound up to rounding and seldom below half the true
    value: the block algorithm of Higham & Tisseur (2000), SIAM J. Matrix Anal. Appl. 21(4),
    1185-1201, with two columns. It starts from the ones and the alternating vector of Higham
    (1988), ACM Trans. Math. Softw. 14(4), 381-396, and keeps parallel columns: no random number
    enters (SciPy's `onenormest` draws from NumPy's global state).

    The inverse is that of LU, applied in fp64: factors in a low format see condition numbers
    up to about 1 / unit_roundoff of that format. Infinite if applying it overflows.
    """
    solver = factors.to(FP64) if isinstance(factors, Factors) else factors
    return condition_estimate(problem.A, solver)


@np.errstate(under="ignore")
def symmetry(problem: LinearSystem) -> float:
    """Closeness to the transpose, ``1 - ||A - A'||_F / (2 ||A||_F)``, between 0 and 1.

    Exactly 1 if A is symmetric (the zero matrix too), 0 if it is skew-symmetric.
    """
    A = _scaled_to_one(problem.A)  # so that no square overflows
    norm, skew = (float(np.linalg.norm(_entries(M))) for M in (A, A - A.T))
    return max(0.0, 1.0 - skew / (2 * norm)) if norm > 0 else 1.0


@np.errstate(under="ignore")
def diagonal_dominance(problem: LinearSystem) -> float:
    """Smallest share of a diagonal entry in its row, ``min_i |a_ii| / sum_j |a_ij|``.

    Between 0 and 1. At least 1/2 if and only if A is (weakly) diagonally dominant by rows, 1
    if it is diagonal, 0 if a diagonal entry is zero. Scaling a row does not change it.
    """
    A: Any = problem.A
    maxima = _row_maxima(A)
    maxima[maxima == 0] = 1.0  # a zero row counts as 0 / 1
    dense = isinstance(A, np.ndarray)
    divisors = maxima[:, None] if dense else np.repeat(maxima, np.diff(A.indptr))
    A = _like(A, _entries(A) / divisors)  # so that no sum overflows
    return float((np.abs(A.diagonal()) / np.maximum(_absolute_sums(A, 1), 1.0)).min())


@np.errstate(over="ignore")
def row_scale_spread(problem: LinearSystem) -> float:
    """Largest over smallest row in the max-norm; infinite if a row is zero."""
    maxima = _row_maxima(problem.A)
    return float(maxima.max() / maxima.min()) if maxima.all() else math.inf


def pivot_growth(problem: LinearSystem, factors: Factors) -> float:
    """``max_ij |u_ij| / max_ij |a_ij|``: at most 2**(n - 1) with partial pivoting, often small."""
    return _largest(factors.U) / _largest(problem.A)


def fill_ratio(problem: LinearSystem, factors: Factors) -> float:
    """``nnz(L + U) / nnz(A)``, entries that are zero in float64 not counted."""
    L, U, A = (np.count_nonzero(_entries(M)) for M in (factors.L, factors.U, problem.A))
    return float((L + U - problem.n) / A)  # L + U has one diagonal


def _entries(A: Any) -> NDArray[np.float64]:
    return np.asarray(A.data if sparse.issparse(A) else A)


def _like(A: Any, entries: NDArray[np.float64]) -> Any:
    """A matrix with these entries in the places of A's."""
    dense = isinstance(A, np.ndarray)
    return entries if dense else sparse.csr_array((entries, A.indices, A.indptr), shape=A.shape)


def _largest(A: Any) -> float:
    return float(np.abs(_entries(A)).max(initial=0.0))


def _scaled_to_one(A: Any) -> Any:
    """A times the power of two that brings its largest entry into [1/2, 1)."""
    return _like(A, shifted(_entries(A), -math.frexp(_largest(A))[1]))


@np.errstate(over="ignore")  # a sum beyond float64 is inf
def _absolute_sums(A: Any, axis: int) -> Vector:
    return np.asarray(abs(A).sum(axis=axis)).ravel()


def _row_maxima(A: Any) -> Vector:
    maxima = abs(A).max(axis=1)
    return np.asarray(maxima.toarray() if sparse.issparse(maxima) else maxima).ravel()


def _probed(name: str, doc: str) -> Feature:
    """A feature of the probe, with those that are computed together with it."""
    compute = probe.GROUPS[name]
    return Feature(name, compute, doc, group=compute.__name__)


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("n", lambda problem: problem.n, "number of unknowns"),
        Feature("density", lambda problem: problem.density, "nnz(A) / n^2"),
        Feature("max_abs", lambda problem: _largest(problem.A), "max_ij |a_ij|"),
        Feature("norm_one", lambda problem: _absolute_sums(problem.A, 0).max(), "||A||_1"),
        Feature("norm_inf", lambda problem: _absolute_sums(problem.A, 1).max(), "||A||_inf"),
        Feature("symmetry", symmetry, "1 - ||A - A'||_F / (2 ||A||_F)"),
        Feature("diagonal_dominance", diagonal_dominance, "min_i |a_ii| / sum_j |a_ij|"),
        Feature("row_scale_spread", row_scale_spread, "max_i m_i / min_i m_i, m_i = max_j |a_ij|"),
        _probed("entries", "stored entries; n^2 for a dense A"),
        _probed("columns", "right-hand sides"),
        _probed("sparse", "1 for a sparse A, 0 for a dense one"),
        _probed("symmetric_pattern", "1 for a nearly symmetric pattern"),
        _probed("symmetric", "1 if A = A'"),
        _probed("looks_positive_definite", "A = A', a_ii > 0"),
        _probed("strong_diagonal", "1 if |a_ii| is large"),
        _probed("banded", "1 if A is a narrow band"),
        _probed("triangular", "1 if A is a triangle"),
        _probed("diagonals", "diagonals of a narrow band, else 0"),
        _probed("row_squares", "sum of the rows' entries squared"),
        _probed("static_pivots", "1 if LU's pivots may stay"),
        _probed("factor_entries", "entries of L in AMD's order"),
        _probed("factor_flops", "Cholesky's flops in AMD's order"),
        _probed("nd_flops", "the same by nested dissection, or 0"),
        Feature(
            "largest_block", probe.largest_block, "share of n in one block of the triangular form"
        ),
        _probed("diagonal_share", "median |a_ii| / ||a_i||_2"),
        _probed("coherence", "n mean cos^2 between rows"),
        _probed("remainder", "rows' distance from half of them"),
        Feature("kappa_exact", kappa_exact, "||A||_2 ||A^-1||_2 by an SVD"),
        Feature("kappa_est", kappa_est, "||A||_1 est(||A^-1||_1)", needs_factors=True),
        Feature("pivot_growth", pivot_growth, "max |u_ij| / max |a_ij|", needs_factors=True),
        Feature("fill_ratio", fill_ratio, "nnz(L + U) / nnz(A)", needs_factors=True),
    )
}
"""The features by name; those that need a factorization come last."""
