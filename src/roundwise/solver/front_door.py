"""`solve` and `factor`: the front door."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from numbers import Real
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roundwise._csr import checked_sparse
from roundwise.backends.arrays import is_sparse
from roundwise.backends.engines.orderings import Orders
from roundwise.features.look import cholesky_from
from roundwise.machine.arithmetic import ieee_arithmetic
from roundwise.machine.spinning import cores_to_ourselves
from roundwise.solver.at_once import dense_at_once, parts_at_once, sparse_at_once
from roundwise.solver.choosing import BACKEND, Chooser, get_chooser, starts_low
from roundwise.solver.complex.factorization import factor_complex, small_complex
from roundwise.solver.complex.systems import is_complex
from roundwise.solver.device.choosing import DeviceLearner
from roundwise.solver.device.devices import place_of
from roundwise.solver.device.solving import factor_on_device, solve_on_device
from roundwise.solver.factorization import Factorization, solved_once
from roundwise.solver.inputs import (
    checked_and_rounded,
    checked_matrix,
    dense_array,
    empty_answer,
)
from roundwise.solver.kinds import returned
from roundwise.solver.patterns import KnownPatterns
from roundwise.solver.stacks import StackedFactorization, solve_stack
from roundwise.solver.structures import (
    NAMES,
    Structure,
    checked_name,
    named_part,
    structured_choice,
)

Array = NDArray[Any]
Accuracy = Literal["backward", "forward"]


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
    lower: bool = False,
    transposed: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """Solve ``A x = b`` in as little precision as it takes, and verify the answer.

    A is factorized in a format that is likely to suffice, x is refined in float64, and x is
    returned only if its backward error is at most `tol`. Where it is not, higher formats and
    other methods follow, up to LU and QR in FP64.

    Parameters
    ----------
    A : (n, n) array_like or sparse, or stacked (..., n, n)
        Dense (any memory order) or sparse (any format), real or complex. It is not modified. CuPy
        arrays and torch tensors on a GPU are solved there.
    b : (n,) or (n, k) array_like or sparse, or stacked (..., n, k)
        One right-hand side, or k of them as columns. Stacks are broadcast as NumPy 2 does it: a
        one-dimensional b is one vector for all systems.
    tol : float, optional
        The backward error to accept: ``||b - A x|| <= tol (||A|| ||x|| + ||b||)`` in the max norm,
        for each right-hand side. The default is ``sqrt(n) u``, which is about what LAPACK
        delivers; u is float64's unit roundoff, or float32's if A and b are float32.
    policy : str, path, Tuner or DeployedPolicy
        What chooses the method and the formats to start with: ``"default"``, a format's name, a
        fitted `Tuner`, or the ``.json`` file that it saved. A bad choice costs time, never digits:
        every answer passes the same gate.
    full_output : bool
        Return a `Solution` instead of x: x with an error bound, the condition number, every
        attempt and the times. Computing the bound may take longer than the solve.
    assume_a : str, optional
        What is known of a dense A, in the words of `scipy.linalg.solve`: ``"general"``,
        ``"symmetric"``, ``"hermitian"``, ``"positive definite"`` (or ``"gen"``, ``"sym"``,
        ``"her"``, ``"pos"``), ``"banded"``, ``"tridiagonal"``, ``"upper triangular"``,
        ``"lower triangular"``, ``"diagonal"``. As there, entries that the name excludes are not
        read, nor is the second triangle of a symmetric matrix. With ``"positive definite"``
        Cholesky is tried first. By default `solve` looks for bands, triangles (also with permuted
        rows and columns) and large symmetric or Hermitian matrices with a positive diagonal;
        ``"general"`` skips that.
    accuracy : {"backward", "forward"}
        ``"backward"``: x has a small backward error. ``"forward"``: x itself is right to a few
        units in the last place; it is refined with residuals in twice the precision. Where the
        condition number is too large for that (about 1e15), a warning says so, and x has a small
        backward error only.
    device : {None, "cpu", "cuda", "cuda:1", ...}
        ``"cuda"``: copy A and b to that GPU, solve there, and copy x back. By default a system is
        solved where it is.
    lower : bool
        Of a matrix that is said to be symmetric, Hermitian or positive definite, read the lower
        triangle, not the upper one.
    transposed : bool
        Solve ``A' x = b``.
    overwrite_a, overwrite_b : bool
        Permit to overwrite A and b, as in SciPy. A is never overwritten, because its numbers verify
        x. If b can hold x (same type, contiguous columns, no part of A), x is returned in b's
        memory.
    check_finite : bool
        Accepted for compatibility with SciPy, and ignored: NaN and infinity are always refused. The
        check costs nothing, as the gate needs the norms of A and b anyway.

    Returns
    -------
    x : array, shaped as b
        float32 if A and b are float32, else float64; complex64 or complex128 if A or b is complex.
        If b is a subclass of NumPy's array, a pandas object, or an array of a package that speaks
        DLPack (CuPy, torch, jax), so is x. With `full_output` a `Solution`, or a `StackedSolution`
        for stacks.

    Raises
    ------
    SolveFailed
        A `numpy.linalg.LinAlgError`: A is singular, or no answer passed the gate. Its attributes
        hold the best x and its backward error. The message says "A is singular" only if the
        determinant is zero (docs/switching.md tells how that is known).
    ValueError, TypeError
        For input that cannot be solved with: shapes, NaN and infinity, operands on two devices,
        complex numbers on a GPU.
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
    >>> rw.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0])
    array([0.09090909, 0.63636364])
    """
    x = solve_knowing(
        None,
        A,
        b,
        tol=tol,
        policy=policy,
        full_output=full_output,
        assume_a=assume_a,
        accuracy=accuracy,
        device=device,
        lower=lower,
        transposed=transposed,
    )
    return _in_memory_of(b, x, A) if overwrite_b else x


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
    lower: bool = False,
    transposed: bool = False,
) -> Any:
    """`solve` with the patterns that a `Solver` has analysed, if there are any.

    `learner` learns from the seconds of solves on a GPU.
    """
    tol = checked_tolerance(tol)
    name = _checked_options(assume_a, accuracy)
    if not (type(A) is type(b) is np.ndarray and device is None):
        place = place_of(A, b, device)
        if place is not None:
            _refuse_structure_on_device(name, transposed)
            return solve_on_device(
                place,
                A,
                b,
                tol=tol,
                policy=policy,
                full_output=full_output,
                positive_definite=_is_definite(name),
                accuracy=accuracy,
                learner=learner,
            )
    # Its first passes over a dense A use all cores, not only its factorization.
    with ieee_arithmetic(), cores_to_ourselves(_order_of(A)):
        x = _solve_here(patterns, A, b, tol, policy, full_output, name, accuracy, lower, transposed)
    return x if type(b) is np.ndarray else returned(x, A, b)


def _solve_here(
    patterns: KnownPatterns | None,
    A: Any,
    b: Any,
    tol: float | None,
    policy: Any,
    full_output: bool,
    name: str | None,
    accuracy: Accuracy,
    lower: bool,
    transposed: bool,
) -> Any:
    """On the processor, checked options; x is NumPy's."""
    chooser = get_chooser(policy)
    given = A
    if name is not None or transposed:
        A = given = _meant(A, name, lower, transposed)
    at_once = not full_output and name is None and accuracy == "backward"
    orders: Orders | None = None
    if is_sparse(A) and A.shape[0] == 0:
        A = A.toarray()
    if is_sparse(A):
        if A.dtype.kind == "c":
            F = _complex_factored(A, b, chooser, tol, name, accuracy)
            return F.solve(b, full_output=full_output)
        if at_once and chooser.at_once:
            # A Solver learns from a choice, and keeps analyses of the patterns it has met.
            found = sparse_at_once(A, b, tol, chooser.at_once, panels=patterns is None)
            if isinstance(found, np.ndarray):
                return found
            orders = found
    elif not is_sparse(b):
        A, b = dense_array("A", A, real=False), dense_array("b", b, real=False)
        if A.ndim != 2 or b.ndim > 2 or A.size == 0 or b.size == 0:
            said = name if name in ("general", "positive definite") else None
            options = {"tol": tol, "policy": chooser, "assume_a": said, "accuracy": accuracy}
            return _solve_others(A, b, full_output, at_once or name in _NOT_READ, **options)
        if A.dtype.kind == "c":
            x = small_complex(A, b, tol, chooser.at_once) if at_once else None
            if x is not None:
                return x
            F = _complex_factored(A, b, chooser, tol, name, accuracy)
            return F.solve(b, full_output=full_output)
        if at_once:
            x = (
                parts_at_once(A, b, tol, chooser.at_once)
                if b.dtype.kind == "c"
                else dense_at_once(A, b, tol, chooser.at_once)
            )
            if x is not None:
                return x
    elif is_complex(A):
        F = _complex_factored(A, b, chooser, tol, name, accuracy)
        return F.solve(b, full_output=full_output)
    columns = _columns_of(b)
    if isinstance(given, np.ndarray):
        A = given  # in the other byte order, say: it is converted again, into a copy of our own
    start = perf_counter()
    rounds = starts_low(chooser) and _order_of(A) >= chooser.at_once
    matrix, rounded = checked_and_rounded(A, BACKEND, columns, rounds=rounds)
    known = nullcontext((matrix, None)) if patterns is None else patterns.borrowed(matrix)
    with known as (matrix, analyses):
        seen = matrix if orders is None else replace(matrix, orders=orders)
        choice = _choice(chooser, seen, name)
        del seen  # it refers to the orders, too
        del orders
        seconds = perf_counter() - start
        F = Factorization(matrix, choice, BACKEND, tol, seconds, accuracy, analyses, rounded)
        del rounded  # its memory belongs to the factors
        del choice  # F drops the orders in it when they have served
        return solved_once(F, b, full_output)


def factor(
    A: Any,
    *,
    tol: float | None = None,
    policy: Any = "default",
    assume_a: Structure | None = None,
    columns: int = 1,
    accuracy: Accuracy = "backward",
    device: str | None = None,
    lower: bool = False,
) -> Factorization | StackedFactorization:
    """Factorize A once, to solve with many right-hand sides; see `solve` for the arguments.

    A is copied, so you may change it afterwards. The factors are made at the first solve, because
    only a solve shows which format suffices. Stacked matrices, (..., n, n), make a
    `StackedFactorization`.

    Parameters
    ----------
    A, tol, policy, assume_a, accuracy, device, lower
        As for `solve`.
    columns : int
        How many right-hand sides to expect. The more there are, the smaller the factorization's
        share of the time, and the less lower precision gains.

    Returns
    -------
    Factorization or StackedFactorization

    Examples
    --------
    >>> F = rw.factor([[4.0, 1.0], [1.0, 3.0]])
    >>> F.solve([1.0, 2.0])
    array([0.09090909, 0.63636364])
    """
    return factor_knowing(
        A,
        tol=tol,
        policy=policy,
        assume_a=assume_a,
        columns=columns,
        accuracy=accuracy,
        device=device,
        lower=lower,
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
    lower: bool = False,
) -> Factorization | StackedFactorization:
    """`factor`; `learner` learns from the seconds of the first solve on a GPU."""
    name = _checked_options(assume_a, accuracy)
    if not isinstance(columns, int | np.integer) or columns < 1:
        raise ValueError(f"columns = {columns!r}; pass how many to expect, at least 1")
    tol = checked_tolerance(tol)
    place = place_of(A, None, device)
    if place is not None:
        _refuse_structure_on_device(name, False)
        return factor_on_device(
            place,
            A,
            tol=tol,
            policy=policy,
            positive_definite=_is_definite(name),
            columns=int(columns),
            accuracy=accuracy,
            learner=learner,
        )
    chooser = get_chooser(policy)
    if name is not None:
        A = _meant(A, name, lower, False)
    with ieee_arithmetic():
        if not is_sparse(A) and np.ndim(A) > 2:
            said: Structure | None = "general" if name == "general" else None
            options: dict[str, Any] = {"tol": tol, "policy": chooser, "columns": columns}
            options |= {"assume_a": said, "accuracy": accuracy}
            stack = dense_array("A", A, real=False)
            return StackedFactorization(stack, lambda one: factor(one, **options))
        if is_complex(A):
            return factor_complex(
                A,
                chooser,
                tol=tol,
                positive_definite=_is_definite(name),
                columns=int(columns),
                accuracy=accuracy,
                copy=True,
            )
        start = perf_counter()
        matrix = checked_matrix(A, BACKEND, int(columns), copy=True)
        choice = _choice(chooser, matrix, name)
        return Factorization(matrix, choice, BACKEND, tol, perf_counter() - start, accuracy)


def _complex_factored(
    A: Any,
    b: Any,
    chooser: Chooser,
    tol: float | None,
    name: str | None,
    accuracy: Accuracy,
) -> Factorization:
    """To solve once with a complex A, which is not copied."""
    return factor_complex(
        A,
        chooser,
        tol=tol,
        positive_definite=_is_definite(name),
        columns=_columns_of(b),
        accuracy=accuracy,
        copy=False,
    )


def _order_of(A: Any) -> int:
    """Of a dense matrix; 0 of others."""
    return len(A) if isinstance(A, np.ndarray) and A.ndim == 2 else 0


def _columns_of(b: Any) -> int:
    shape = np.shape(b)
    return max(1, shape[1]) if len(shape) == 2 else 1


_NOT_READ = tuple(name for name in NAMES if name not in ("gen", "general"))
"""Names that have served when their part of A was taken."""


def _meant(A: Any, name: str | None, lower: bool, transposed: bool) -> Any:
    """The matrix to solve with: the part of A that the name means, transposed if so asked."""
    A = A if name in (None, "general") else named_part(A, str(name), lower)
    if transposed and not is_sparse(A):
        A = dense_array("A", A, real=False)
        return np.swapaxes(A, -1, -2) if A.ndim > 1 else A
    return checked_sparse(A, "A").T if transposed else A


def _choice(chooser: Any, matrix: Any, name: str | None) -> Any:
    if name not in ("general", "positive definite"):
        seen = structured_choice(matrix)
        if seen is not None:
            return seen
    return chooser.choose(matrix, _is_definite(name))


def _solve_others(
    A: Array, b: Array, full_output: bool, at_once: bool, policy: Any, **options: Any
) -> Any:
    """Stacks, and what is empty."""
    if A.size == 0 or b.size == 0:
        if full_output:
            raise ValueError(
                "A or b is empty: there is no solve to describe; leave out full_output"
            )
        return empty_answer(A, b)

    def one(matrix: Array, columns: Array) -> Any:
        return solve(matrix, columns, policy=policy, full_output=full_output, **options)

    is_small = at_once and "c" not in (A.dtype.kind, b.dtype.kind)
    bound = min(policy.at_once, cholesky_from()) if is_small else 0
    return solve_stack(A, b, one, options["tol"], bound, full_output)


def _in_memory_of(b: Any, x: Any, A: Any) -> Any:
    """x in the memory of b, where it fits, and where A is not."""
    same = type(b) is type(x) is np.ndarray and b.dtype == x.dtype and b.shape == x.shape
    if not (same and b.flags.f_contiguous and b.flags.writeable):
        return x
    if np.may_share_memory(b, A.data if is_sparse(A) else np.asarray(A)):
        return x
    b[...] = x
    return b


def _is_definite(name: str | None) -> bool | None:
    return {"positive definite": True, "general": False}.get(name or "")


def _refuse_structure_on_device(name: str | None, transposed: bool) -> None:
    if transposed or name not in (None, "general", "positive definite"):
        raise ValueError(
            "a GPU solves with A as it is: leave out transposed, and assume_a but for 'general' "
            "and 'positive definite'; pass A.T, or the part of A that is meant"
        )


def _checked_options(assume_a: Any, accuracy: Any) -> str | None:
    """SciPy's long name of the structure."""
    if accuracy not in ("backward", "forward"):
        raise ValueError(f"accuracy = {accuracy!r}; choose 'backward' or 'forward'")
    return None if assume_a is None else checked_name(assume_a)


def checked_tolerance(tol: Any) -> float | None:
    if tol is None:
        return None
    if not isinstance(tol, Real):
        raise TypeError(f"tol is of type {type(tol).__name__}; pass a number, or None")
    try:
        tolerance = float(tol)
    except OverflowError:  # of an integer that float64 cannot hold
        tolerance = math.inf
    if not 0 < tolerance < 1:
        raise ValueError(f"tol = {tolerance:g}; choose 0 < tol < 1, or None for sqrt(n) u")
    return tolerance
