"""`solve` and `factor`: the front door."""

from __future__ import annotations

from contextlib import nullcontext
from numbers import Real
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms.accuracy import default_tolerance, passes, upper_bounds, within
from roundwise.backends.native import exact
from roundwise.backends.native.small import solve_at_once
from roundwise.backends.native.small_sparse import LARGEST, solve_sparse_at_once
from roundwise.features.look import cholesky_from
from roundwise.solver.choosing import BACKEND, get_chooser
from roundwise.solver.device_choosing import DeviceLearner
from roundwise.solver.devices import place_of
from roundwise.solver.examining import SUSPICIOUS
from roundwise.solver.factorization import Factorization
from roundwise.solver.inputs import checked_matrix, dense_array, stacked_shape
from roundwise.solver.on_device import factor_on_device, solve_on_device
from roundwise.solver.patterns import KnownPatterns

Array = NDArray[Any]
Structure = Literal["gen", "pos"]
Accuracy = Literal["backward", "forward"]

MOSTLY_ZERO = 4
"""A sparse matrix with more than one entry in so many places is solved with as a dense one."""


def solve(
    A: Any,
    b: Any,
    *,
    tol: float | None = None,
    policy: Any = "default",
    full_output: bool = False,
    assume_a: Structure | None = None,
    accuracy: Accuracy = "backward",
    device: str | None = None,
) -> Any:
    """Solve ``A x = b`` in as little precision as it takes, and verify the answer.

    Parameters
    ----------
    A : (n, n) array_like or sparse
        Dense (any memory order) or sparse (any format), real. It is not modified. Stacked dense
        systems, of shape (..., n, n), are solved one by one as `numpy.linalg.solve` does. CuPy
        arrays and torch tensors on a GPU are solved there, and x is of the kind of b.
    b : (n,) or (n, k) array_like or sparse, or stacked (..., n, k)
    tol : float, optional
        The backward error to accept: ``||b - A x|| <= tol (||A|| ||x|| + ||b||)`` in the max norm,
        for each right-hand side. The default is ``sqrt(n) u``, which is about what LAPACK
        delivers; u is float64's unit roundoff, or float32's if A and b are float32.
    policy : str, path, Tuner or DeployedPolicy
        What chooses the method and the formats to start with: ``"default"``, a format's name, a
        fitted `Tuner`, or the ``.json`` file that it saved. It may cost time, but no digits: what
        it leads to passes the same gate.
    full_output : bool
        Return a `Solution`, with an error bound and the whole story, instead of x.
    assume_a : {"gen", "pos"}, optional
        ``"pos"``: A is symmetric positive definite, and Cholesky is tried first. By default a
        large dense A that is symmetric with a positive diagonal is tried as such.
    accuracy : {"backward", "forward"}
        ``"forward"``: refine x with residuals in twice the precision until it is right to a few
        units in the last place, which the default does not ask for. Where the condition number is
        beyond the reach of FP64 factors (about 1e15), a warning says so, and x is as by default.
    device : {None, "cpu", "cuda", "cuda:1", ...}
        ``"cuda"``: copy A and b to that GPU, solve there, and copy x back. By default a system is
        solved where it is.

    Returns
    -------
    x : array, shaped as b
        float32 if A and b are, else float64. A `Solution` if `full_output`.

    Raises
    ------
    SolveFailed
        A `numpy.linalg.LinAlgError`: A is singular, or no answer passed the gate. It has the best
        x and its backward error. "A is singular" is said of matrices with determinant zero only
        (docs/switching.md tells how that is known).
    ValueError, TypeError
        For input that cannot be solved with: shapes, NaN and infinity, complex numbers, operands
        on two devices.
    DeviceUnavailable, DeviceMemoryError
        There is no GPU, or its memory does not suffice.
    UnknownNameError
        A `KeyError`: there is no policy of that name.

    Warns
    -----
    IllConditionedWarning
        A `scipy.linalg.LinAlgWarning`: x passed the gate, but fewer than about three of its digits
        are right, or it is less accurate than was asked for.

    Examples
    --------
    >>> import roundwise
    >>> roundwise.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0])
    array([0.09090909, 0.63636364])
    """
    return solve_knowing(
        None,
        A,
        b,
        tol=tol,
        policy=policy,
        full_output=full_output,
        assume_a=assume_a,
        accuracy=accuracy,
        device=device,
    )


def solve_knowing(
    patterns: KnownPatterns | None,
    A: Any,
    b: Any,
    *,
    tol: float | None,
    policy: Any,
    full_output: bool,
    assume_a: Structure | None,
    accuracy: Accuracy = "backward",
    device: str | None = None,
    learner: DeviceLearner | None = None,
) -> Any:
    """`solve`, with the analyses of patterns that were seen before, if there are any.

    `learner` is told what solves on a GPU take.
    """
    tol = _checked_tolerance(tol)
    _check_options(assume_a, accuracy)
    if not (type(A) is type(b) is np.ndarray and device is None):
        place = place_of(A, b, device)
        if place is not None:
            return solve_on_device(
                place,
                A,
                b,
                tol=tol,
                policy=policy,
                full_output=full_output,
                positive_definite=_is_definite(assume_a),
                accuracy=accuracy,
                learner=learner,
            )
    chooser = get_chooser(policy)
    given = A
    at_once = not full_output and assume_a is None and accuracy == "backward"
    if sparse.issparse(A):
        if at_once and chooser.at_once:
            x = _solve_sparse_at_once(A, b, tol, chooser.at_once)
            if x is not None:
                return x
    elif not sparse.issparse(b):
        A, b = dense_array("A", A), dense_array("b", b)
        if A.ndim > 2 or b.ndim > 2:
            if full_output:
                raise ValueError("full_output describes one system; loop over the stacked ones")
            options = {"tol": tol, "policy": chooser, "assume_a": assume_a, "accuracy": accuracy}
            return _solve_stacked(A, b, **options)
        if at_once:
            x = _solve_at_once(A, b, tol, chooser.at_once)
            if x is not None:
                return x
    shape = np.shape(b)
    columns = max(1, shape[1]) if len(shape) == 2 else 1
    if isinstance(given, np.ndarray):
        A = given  # in the other byte order, say: it is converted again, into a copy of our own
    start = perf_counter()
    matrix = checked_matrix(A, BACKEND, columns)
    known = nullcontext((matrix, None)) if patterns is None else patterns.borrowed(matrix)
    with known as (matrix, analyses):
        choice = chooser.choose(matrix, _is_definite(assume_a))
        seconds = perf_counter() - start
        F = Factorization(matrix, choice, BACKEND, tol, seconds, accuracy, analyses)
        del choice  # F drops the orders in it when they have served
        return F.solve(b, full_output=full_output)


def factor(
    A: Any,
    *,
    tol: float | None = None,
    policy: Any = "default",
    assume_a: Structure | None = None,
    columns: int = 1,
    accuracy: Accuracy = "backward",
    device: str | None = None,
) -> Factorization:
    """Factorize A once, to solve with many right-hand sides; see `solve` for the arguments.

    The factors are made at the first solve: only then it is known which are good enough. A is
    copied, so that it may change before the next solve. `columns` is how many right-hand sides to
    expect: the more, the less of the time the factorization takes, and lower precision gains less.
    """
    return factor_knowing(
        A,
        tol=tol,
        policy=policy,
        assume_a=assume_a,
        columns=columns,
        accuracy=accuracy,
        device=device,
    )


def factor_knowing(
    A: Any,
    *,
    tol: float | None,
    policy: Any,
    assume_a: Structure | None,
    columns: int,
    accuracy: Accuracy = "backward",
    device: str | None = None,
    learner: DeviceLearner | None = None,
) -> Factorization:
    """`factor`; `learner` is told what the first solve on a GPU takes."""
    _check_options(assume_a, accuracy)
    if not isinstance(columns, int | np.integer) or columns < 1:
        raise ValueError(f"columns = {columns!r}; pass how many to expect, at least 1")
    tol = _checked_tolerance(tol)
    place = place_of(A, None, device)
    if place is not None:
        return factor_on_device(
            place,
            A,
            tol=tol,
            policy=policy,
            positive_definite=_is_definite(assume_a),
            columns=int(columns),
            accuracy=accuracy,
            learner=learner,
        )
    chooser = get_chooser(policy)
    start = perf_counter()
    matrix = checked_matrix(A, BACKEND, int(columns), copy=True)
    choice = chooser.choose(matrix, _is_definite(assume_a))
    return Factorization(matrix, choice, BACKEND, tol, perf_counter() - start, accuracy)


def _is_definite(assume_a: Structure | None) -> bool | None:
    return None if assume_a is None else assume_a == "pos"


def _check_options(assume_a: Any, accuracy: Any) -> None:
    if assume_a not in (None, "gen", "pos"):
        raise ValueError(f"assume_a = {assume_a!r}; choose 'gen', 'pos' or None")
    if accuracy not in ("backward", "forward"):
        raise ValueError(f"accuracy = {accuracy!r}; choose 'backward' or 'forward'")


def _checked_tolerance(tol: Any) -> float | None:
    if tol is None:
        return None
    if not isinstance(tol, Real):
        raise TypeError(f"tol is of type {type(tol).__name__}; pass a number, or None")
    tolerance = float(tol)
    if not 0 < tolerance < 1:
        raise ValueError(f"tol = {tol}; choose 0 < tol < 1, or None for sqrt(n) u")
    return tolerance


@np.errstate(all="ignore")
def _solve_at_once(A: Array, b: Array, tol: float | None, bound: int) -> Array | None:
    """A dense float64 system with n < bound in FP64, through the same gate; None if it fails."""
    n = len(A) if A.ndim == 2 else 0
    fits = A.shape == (n, n) and b.ndim in (1, 2) and len(b) == n and b.size > 0
    if not (fits and 0 < n < min(bound, cholesky_from()) and A.dtype == b.dtype == np.float64):
        return None
    solved = solve_at_once(A, b)
    if solved is None:
        return None
    x, error, pivot_ratio = solved
    if not pivot_ratio > SUSPICIOUS:
        return None  # perhaps few digits are right, or A is singular: that is looked into
    bound = upper_bounds(error, n, exact.error_of(n, exact.block_for(n)))
    return x if passes(bound, default_tolerance(n) if tol is None else tol) else None


@np.errstate(all="ignore")
def _solve_sparse_at_once(A: Any, b: Any, tol: float | None, bound: int) -> Array | None:
    """A float64 system in FP64, through the same gate; None if that fails, or takes too long.

    One with so many entries that it is as good as dense is solved as such, if n < bound.
    """
    if not (A.format in ("csr", "csc") and A.nnz <= LARGEST and type(b) is np.ndarray):
        return None
    n = len(b) if b.ndim in (1, 2) else 0
    fits = A.shape == (n, n) and b.size > 0 and A.dtype == b.dtype == np.float64
    arrays = A.indptr, A.indices, A.data
    fits = fits and all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
    if not (fits and A.indices.dtype == A.indptr.dtype == np.int32 and A.has_canonical_format):
        return None
    if MOSTLY_ZERO * A.nnz > n * n:
        return _solve_at_once(A.toarray(), b, tol, bound)
    tolerance, unknown = default_tolerance(n) if tol is None else tol, exact.error_of(n)
    solved = solve_sparse_at_once(A, b, within(tolerance, n, unknown))
    if solved is None:
        return None  # perhaps few digits are right, or A is singular: that is looked into
    x, error = solved
    return x if passes(upper_bounds(error, n, unknown), tolerance) else None


def _solve_stacked(A: Array, b: Array, **options: Any) -> Array:
    """System by system; a b with one dimension is one vector for all, as in NumPy."""
    columns = b[:, None] if b.ndim == 1 else b
    stack = stacked_shape(A, columns)
    matrices = np.broadcast_to(A, stack + A.shape[-2:])
    blocks = np.broadcast_to(columns, stack + columns.shape[-2:])
    answers = [solve(matrices[i], blocks[i], **options) for i in np.ndindex(stack)]
    if not answers:
        raise ValueError(f"A and b stack to shape {stack}, no system at all; pass at least one")
    X = np.reshape(answers, stack + answers[0].shape)
    return X[..., 0] if b.ndim == 1 else X
