"""`solve` by a Krylov method: where A is an operator, or the caller has a say in the iteration.

Methods are tried in turn, each from the best x so far: CG and MINRES if A and M are symmetric, then
FGMRES, then BiCGSTAB. What they return is judged by the gate, ``b - A x`` computed afresh; a matrix
that none of them solves is solved as without these arguments.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise import krylov
from roundwise.actions import Action
from roundwise.algorithms import Outcome, OutcomeStatus
from roundwise.algorithms.accuracy import (
    backward_errors,
    default_tolerance,
    passes,
    target_of,
    upper_bounds,
)
from roundwise.formats import FP32, FP64
from roundwise.krylov import KrylovResult, KrylovStatus, Sizes
from roundwise.machine.threads import ieee_arithmetic
from roundwise.solver.answer import VerifiedAnswer
from roundwise.solver.inputs import answer_dtype, columns_of_rows, dense_array
from roundwise.solver.operators import (
    Products,
    given_parts,
    preconditioner,
    products_with,
    real_parts,
    seems_symmetric,
)
from roundwise.solver.solution import SolveFailed

Array = NDArray[Any]

MOST = 10_000
"""Iterations of one method at most. A taste: a preconditioner that needs more is none."""

MARGIN = 0.5
"""Of the tolerance, to which a method iterates: the rest is for rounding errors of the gate."""

_STATUSES = {
    KrylovStatus.CONVERGED: OutcomeStatus.CONVERGED,
    KrylovStatus.ITERATION_LIMIT: OutcomeStatus.ITERATION_LIMIT,
    KrylovStatus.STOPPED: OutcomeStatus.STOPPED,
    KrylovStatus.STAGNATED: OutcomeStatus.STAGNATED,
    KrylovStatus.BREAKDOWN: OutcomeStatus.HOPELESS,
    KrylovStatus.INDEFINITE: OutcomeStatus.INDEFINITE,
    KrylovStatus.INDEFINITE_PRECONDITIONER: OutcomeStatus.UNSUITED,
    KrylovStatus.NONFINITE: OutcomeStatus.OVERFLOW,
}


@dataclass(frozen=True)
class Step:
    """What `callback` is told after an iteration.

    Parameters
    ----------
    method : str
        ``"cg"``, ``"minres"``, ``"gmres"`` or ``"bicgstab"``.
    iteration : int
    residual_norms : array
        ``||b - A x||_2`` of the columns that are not good enough yet.

    Examples
    --------
    >>> steps = []
    >>> x = rw.solve(np.diag([1.0, 2.0, 4.0]), np.ones(3), callback=steps.append)
    >>> [step.iteration for step in steps]
    [1, 2, 3]
    """

    method: str
    iteration: int
    residual_norms: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Wishes:
    """What the caller says about the iteration; all None if nothing is."""

    M: Any = None
    x0: Any = None
    callback: Callable[[Step], Any] | None = None
    progress: bool = False
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} = {value}; pass a number that is not negative")

    @property
    def iterate(self) -> bool:
        """Whether a Krylov method is asked for."""
        given = (self.M, self.x0, self.callback)
        return self.progress or any(one is not None for one in given)

    def allowed(self, B: Array) -> NDArray[np.float64]:
        """SciPy's rule: ``||b - A x||_2`` of each column at most; infinite if not asked for."""
        if self.rtol is None and self.atol is None:
            return np.full(B.shape[1], np.inf)
        norms = np.linalg.norm(B, axis=0)
        return np.asarray(np.maximum((self.rtol or 0.0) * norms, self.atol or 0.0))

    def loosened(self, tol: float | None) -> float | None:
        """The backward error to try first: as small as `rtol`, if nothing else is said."""
        if tol is not None or not self.rtol:
            return tol
        return min(self.rtol, 0.5)

    def checked(self, A: Any, b: Any, answer: Any, full_output: bool) -> Any:
        """A `Solution`, or its x, if it meets SciPy's rule; raises `SolveFailed` if not."""
        norms, allowed = self._residuals(A, b, answer.x)
        if not (norms <= allowed).all():
            raise SolveFailed(
                f"||b - A x||_2 is {norms.max():.1e}, rtol and atol allow {allowed.min():.1e}: "
                "float64 cannot do better for this A; raise rtol or atol",
                *(answer.x, answer.backward_error, answer.attempts),
            )
        return answer if full_output else answer.x

    def meets(self, A: Any, b: Any, x: Any) -> bool:
        """Whether x meets SciPy's rule."""
        norms, allowed = self._residuals(A, b, x)
        return bool((norms <= allowed).all())

    def _residuals(self, A: Any, b: Any, x: Any) -> tuple[Array, Array]:
        right = dense_array("b", b, real=False)
        B, X = right.reshape(len(right), -1), np.asarray(x).reshape(len(right), -1)
        if self.rtol is None and self.atol is None:
            return np.zeros(B.shape[1]), self.allowed(B)
        with np.errstate(all="ignore"):
            R, _ = products_with(A, right).residual(X, B)
        return np.linalg.norm(R, axis=0), self.allowed(B)


def to_residual(
    solve: Callable[[Any, Any, float | None, bool], Any],
    A: Any,
    b: Any,
    wishes: Wishes,
    tol: float | None,
    full_output: bool,
) -> Any:
    """Solve so that SciPy's rule is met: with a backward error of `rtol`, then with the least."""
    loose = wishes.loosened(tol)
    answer = solve(A, b, loose, True)
    if loose != tol and not wishes.meets(A, b, answer.x):
        answer = solve(A, b, tol, True)
    return wishes.checked(A, b, answer, full_output)


@dataclass(frozen=True, eq=False)
class IterativeSolution(VerifiedAnswer):
    """A verified answer of a Krylov method, and how it came about.

    Parameters
    ----------
    x : array
        The answer, shaped as b.
    status : str
        ``"accepted"``: the first method's answer passed the gate; ``"escalated"``: a later one's.
    action : str
        The method (``cg``, ``minres``, ``gmres`` or ``bicgstab``), and the formats of
        preconditioner, vectors, update and residual.
    backward_error : float
        ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm; the largest over the columns.
    tolerance : float
        The largest backward error that the gate accepts.
    norm : float
        ``||A||`` in it.
    norm_is_lower_bound : bool
        Whether A is an operator: `norm` is then the largest ``max |A v| / max |v|`` seen, so that
        the backward error is at most that, for products as the operator computes them.
    history : array, (iterations + 1, k)
        ``||b - A x||_2`` after each iteration of the method that gave the answer.
    attempts : tuple of Outcome
    timings : dict
        Seconds of ``prepare``, ``iterate`` and ``verify``.
    decision : str
        Why the first method was chosen.

    Examples
    --------
    >>> values = np.array([1.0, 2.0, 4.0])
    >>> solution = rw.solve(lambda v: values * v, np.ones(3), full_output=True)
    >>> solution.method, solution.iterations, solution.norm_is_lower_bound
    ('cg', 3, True)
    """

    x: Array = field(repr=False)
    status: str
    action: str
    backward_error: float
    tolerance: float
    norm: float
    norm_is_lower_bound: bool
    history: NDArray[np.float64] = field(repr=False)
    attempts: tuple[Outcome, ...] = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)
    decision: str = field(repr=False)

    @property
    def method(self) -> str:
        """The Krylov method."""
        return self.action.partition(":")[0]

    def __repr__(self) -> str:
        return self._summary(f"{self.iterations} iterations")

    def explain(self) -> str:
        """The story of this solve in plain words."""
        lines = [self.decision]
        lines += [
            f"{name_of(one)}, {one.outer_iterations} iterations, "
            f"{1e3 * (one.seconds or 0.0):.3g} ms: {one.reason or 'accepted'}."
            for one in self.attempts
        ]
        lines.append(
            f"The answer's backward error {self.backward_error:.1e} passed the gate of "
            f"{self.tolerance:.1e}."
        )
        return "\n".join([*lines, *self._trust(), self._time()])

    def _trust(self) -> list[str]:
        if not self.norm_is_lower_bound:
            return []
        return [
            "A is an operator: this holds for products as it computes them, and with a lower bound "
            f"of its norm, {self.norm:.2e}."
        ]

    def plot(self, ax: Any = None) -> Any:
        """Draw the residual norms by iteration; needs ``pip install "roundwise[plot]"``."""
        from roundwise.notebook.cards import plot_history

        return plot_history(self.history, f"{self.method}: {self.status}", ax)


def solve_iteratively(
    A: Any,
    b: Any,
    wishes: Wishes,
    tol: float | None,
    assume_a: str | None,
    direct: Callable[[], Any] | None,
    full_output: bool,
) -> Any:
    """Solve by Krylov methods; by `direct`, if there is that, where none of them gets there."""
    start = perf_counter()
    with ieee_arithmetic(), np.errstate(all="ignore"):  # what is not finite is found and named
        right = dense_array("b", b, real=False)
        symmetric = assume_a in ("symmetric", "hermitian", "positive definite")
        given = products_with(A, right, symmetric)
        columns = np.asarray(_checked(right, given.n))
        B = columns.reshape(given.n, -1)
        M = preconditioner(wishes.M, given)
        X = _start(wishes.x0, B, given)
        run = _Iteration(given, B, M, X, wishes, tol, assume_a, _dtype(A, right), right.shape)
        prepared = perf_counter() - start
        solution = run.solved(prepared)
    if solution is None:
        if direct is None or run.was_stopped:
            raise run.failure()
        try:
            return direct()
        except SolveFailed as failure:
            failure.attempts = (*run.attempts, *failure.attempts)
            raise
    x = solution.x.reshape(right.shape)
    if not full_output:
        return x
    return IterativeSolution(**{**vars(solution), "x": x})


def name_of(attempt: Outcome) -> str:
    """The method of an attempt."""
    return attempt.action.partition(":")[0]


class _Iteration:
    """The methods that are tried for one system, in turn."""

    def __init__(
        self,
        given: Products,
        B: Array,
        M: krylov.Operator | None,
        X: Array | None,
        wishes: Wishes,
        tol: float | None,
        assume_a: str | None,
        dtype: Any,
        shape: tuple[int, ...],
    ) -> None:
        self._given, self._B, self._M, self._wishes, self._dtype = given, B, M, wishes, dtype
        self._X, self._shape = X, shape
        self._real_B = real_parts(B, given.is_complex)
        self._b_largest = np.abs(B).max(axis=0, initial=0.0)
        single = dtype in (np.float32, np.complex64)
        usual = default_tolerance(given.n, FP32 if single else FP64)
        loose = wishes.rtol is not None and tol is None
        self.tolerance = max(usual, min(wishes.rtol or 0.0, 0.5)) if loose else tol or usual
        self._target = target_of(self.tolerance, np.float32 if single else np.float64)
        self._methods, self.reason = self._chosen(assume_a)
        self.attempts: list[Outcome] = []
        self._best: tuple[float, Array | None] = (math.inf, None)
        self.was_stopped = False

    def _chosen(self, assume_a: str | None) -> tuple[tuple[str, ...], str]:
        given, length = self._given, len(self._real_B)
        if not given.is_symmetric:
            return ("gmres", "bicgstab"), "A is not symmetric: GMRES first."
        if not seems_symmetric(self._M, length):
            return ("gmres", "bicgstab"), "The preconditioner is not symmetric: GMRES first."
        diagonal = given.diagonal
        if assume_a != "positive definite" and diagonal is not None and not (diagonal > 0).all():
            return ("minres", "gmres"), "A is symmetric, with a diagonal that is not positive."
        said = "said to be" if assume_a == "positive definite" else "symmetric, perhaps"
        return ("cg", "minres", "gmres"), f"A is {said} positive definite: CG first."

    def solved(self, prepared: float) -> IterativeSolution | None:
        """The first answer that passes the gate; None if there is none."""
        timings = {"prepare": prepared, "iterate": 0.0, "verify": 0.0}
        for method in self._methods:
            start = perf_counter()
            found = self._run(method)
            iterated = perf_counter()
            X = given_parts(np.asarray(found.X), self._given.is_complex).astype(self._dtype)
            errors, bounds, norms = self._judged(X)
            timings["iterate"] += iterated - start
            timings["verify"] += perf_counter() - iterated
            worst = float(bounds.max(initial=0.0))
            meets = bool((norms <= self._wishes.allowed(self._B)).all())
            passed = passes(bounds, self.tolerance) and meets
            status, reason = _STATUSES[found.status], found.status.value
            if not passed and found.converged:
                status = OutcomeStatus.UNCONFIRMED
                reason = "b - A x, computed more accurately, is larger than the gate accepts"
            history = [{"residual": float(step.max(initial=0.0))} for step in found.history]
            self.attempts.append(
                Outcome(
                    OutcomeStatus.CONVERGED if passed else status,
                    None,
                    nbe=float(errors.max(initial=0.0)),
                    outer_iterations=found.iterations,
                    history=tuple(history),
                    reason="" if passed else reason,
                    action=Action([FP64] * 4, method).text,
                    arithmetic="native",
                    seconds=perf_counter() - start,
                )
            )
            if passed:
                return IterativeSolution(
                    X,
                    "accepted" if len(self.attempts) == 1 else "escalated",
                    self.attempts[-1].action,
                    float(errors.max(initial=0.0)),
                    self.tolerance,
                    self._given.norm,
                    not self._given.is_exact,
                    np.array(found.history),
                    tuple(self.attempts),
                    timings,
                    self.reason,
                )
            if worst < self._best[0]:
                self._best, self._X = (worst, X), np.asarray(found.X)
            if found.status is KrylovStatus.STOPPED:
                self.was_stopped = True
                break
        return None

    def failure(self) -> SolveFailed:
        """Why there is no answer."""
        told = "; ".join(f"{name_of(one)}: {one.reason}" for one in self.attempts)
        reason = f"no answer reached a backward error of {self.tolerance:.1e}: {told}"
        if not self._given.is_exact:
            reason += (
                ". A is an operator; pass a better preconditioner (M=), a larger tol, or A as a "
                "matrix, if there is one; if A is singular, pass nullspace="
            )
        x = None if self._best[1] is None else self._best[1].reshape(self._shape)
        return SolveFailed(reason, x, self._best[0], tuple(self.attempts))

    def _run(self, method: str) -> KrylovResult:
        given, wishes = self._given, self._wishes
        stop = _Both(
            MARGIN * self._target,
            max(given.norm, np.finfo(float).tiny),
            self._b_largest if not given.is_complex else np.abs(self._real_B).max(axis=0),
            MARGIN * wishes.allowed(self._B),
        )
        arguments: dict[str, Any] = {"stop": stop, "most": min(10 * len(self._real_B), MOST)}
        if method in ("cg", "bicgstab"):
            arguments["norm"] = given.norm
        with _Progress(method, stop, wishes.progress) as progress:

            def watch(iteration: int, sizes: Sizes) -> bool:
                progress.show(iteration, sizes)
                if wishes.callback is None:
                    return False
                return wishes.callback(Step(method, iteration, sizes.two)) is True

            arguments["watch"] = watch
            M, start = self._M, self._X
            if method == "cg":
                arguments["flexible"] = M is not None
            run: Any = getattr(krylov, method)
            found: KrylovResult = run(given.times, self._real_B, M, start=start, **arguments)
            return found

    def _judged(self, X: Array) -> tuple[Array, Array, Array]:
        """Backward errors, upper bounds of them, and 2-norms of residuals."""
        given, double = self._given, np.complex128 if self._given.is_complex else np.float64
        with np.errstate(all="ignore"):  # infinity and NaN never pass
            R, unknown = given.residual(X.astype(double), self._B.astype(double))
            sizes = (np.abs(Y).max(axis=0, initial=0.0) for Y in (R, X, self._B))
            r_norms, x_norms, b_norms = (np.asarray(one, dtype=np.float64) for one in sizes)
            errors = backward_errors(r_norms, given.norm, x_norms, b_norms)
            zero = (x_norms == 0) & (b_norms == 0)
            bounds = np.where(zero, 0.0, upper_bounds(errors, given.n, unknown))
            return errors, bounds, np.linalg.norm(R, axis=0)


@dataclass(frozen=True)
class _Both(krylov.BackwardError):
    """The gate's rule and SciPy's."""

    allowed: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), compare=False)

    def met(self, sizes: Sizes, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(super().met(sizes, columns) & (sizes.two <= self.allowed[columns]))

    def wanted(self, sizes: Sizes, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.minimum(super().wanted(sizes, columns), self.allowed[columns])


class _Progress:
    """A line on the terminal, or in a notebook, if it was asked for: digits that are missing."""

    WIDTH, PAUSE = 30, 0.1

    def __init__(self, method: str, stop: krylov.Stop, wanted: bool) -> None:
        self._method, self._stop, self._wanted = method, stop, wanted
        self._first, self._shown = 0.0, 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._shown:
            sys.stderr.write("\n")

    def show(self, iteration: int, sizes: Sizes) -> None:
        now = perf_counter()
        if not self._wanted or now - self._shown < self.PAUSE:
            return
        columns = np.arange(len(sizes.two))
        with np.errstate(all="ignore"):
            missing = float(np.max(np.log10(sizes.two / self._stop.wanted(sizes, columns))))
        missing = max(missing, 0.0) if math.isfinite(missing) else 0.0
        self._first, self._shown = max(self._first, missing), now
        done = round(self.WIDTH * (1 - missing / self._first)) if self._first else self.WIDTH
        bar = "#" * done + "." * (self.WIDTH - done)
        line = f"{self._method} [{bar}] {iteration} iterations, {missing:.1f} digits left"
        sys.stderr.write(f"\r{line} ")
        sys.stderr.flush()


def _checked(b: Array, rows: int) -> Array:
    if b.dtype.kind != "c":
        return columns_of_rows(b, rows)
    columns_of_rows(b.real, rows), columns_of_rows(b.imag, rows)
    return b


def _start(x0: Any, B: Array, given: Products) -> Array | None:
    if x0 is None:
        return None
    X = dense_array("x0", x0, real=False)
    X = X[:, None] if X.ndim == 1 else X
    if X.shape not in (B.shape, (len(B), 1)) or not np.isfinite(X).all():
        raise ValueError(f"x0 has shape {np.shape(x0)}; pass finite numbers, shaped as b")
    if X.dtype.kind == "c" and not given.is_complex:
        raise TypeError("x0 is complex, A and b are real; pass a real x0")
    return real_parts(np.broadcast_to(X, B.shape), given.is_complex)


def _dtype(A: Any, b: Array) -> Any:
    """Of the answer: as for matrices; an operator without a type counts as float64."""
    dtype = getattr(A, "dtype", None) or np.dtype(np.float64)
    return answer_dtype(np.empty(0, dtype), b)
