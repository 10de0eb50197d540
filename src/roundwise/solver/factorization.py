"""`Factorization`: factor once, solve many, and climb to more precision only when needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, Self

import numpy as np

from roundwise._forking import fork_safe_lock
from roundwise.actions import Action
from roundwise.algorithms import VerifiedSolve
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends import Analysis
from roundwise.backends.arrays import is_sparse
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.machine.threads import ieee_arithmetic
from roundwise.solver.climb import climb
from roundwise.solver.decide import Plan
from roundwise.solver.derived import InverseOperator, complex_slogdet, slogdet
from roundwise.solver.express import ExpressAnswer, ExpressFactors, solution_of
from roundwise.solver.factored import Factored, with_pattern_of
from roundwise.solver.inputs import (
    GivenColumns,
    checked_columns,
    dense_array,
    is_complex,
    scaled_blocks,
)
from roundwise.solver.prepare import PLAIN, Options, prepare
from roundwise.solver.solution import Solution, SolveFailed, joined
from roundwise.solver.system import System, Taken

RETRY_AFTER = 8
"""Refactorizations after which a format that once did not suffice is tried again."""


class Factorization:
    """A factored matrix whose every answer passes the gate; `roundwise.factor` makes it.

    A solve starts with the factors that the last one ended with. Threads may share the object.

    Parameters
    ----------
    system, plan, others
        What `roundwise.factor` passes; call that.

    Examples
    --------
    >>> F = rw.factor([[4.0, 1.0], [2.0, 3.0]])
    >>> F.solve([1.0, 2.0])
    array([0.1, 0.6])
    >>> F.solve([1.0, 2.0], trans="T")
    array([-0.1,  0.7])
    >>> F.refactor([[8.0, 2.0], [4.0, 6.0]]).solve([1.0, 2.0])
    array([0.05, 0.3 ])
    """

    def __init__(
        self,
        system: System,
        plan: Plan,
        options: Options = PLAIN,
        features_seconds: float = 0.0,
        analyses: dict[str, Analysis] | None = None,
        express: ExpressFactors | None = None,
    ) -> None:
        self._express = express
        self._tol, self._accuracy = options.tol, options.accuracy
        if self._accuracy == "forward":
            plan = replace(plan, ladder=_with_exact_residuals(plan.ladder))
        self._factored = Factored(system, plan, analyses)
        self._backend, self._reason, self._budget = system.backend, plan.reason, plan.budget
        self._features_seconds, self._learn = features_seconds, plan.learn
        self._counting = fork_safe_lock()  # what each of several threads may change
        self._renewals, self._patience = 0, RETRY_AFTER

    @property
    def shape(self) -> tuple[int, int]:
        return self._order, self._order

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64, or complex128 of a complex A: that of answers in double precision."""
        return np.dtype(np.complex128 if self._matrix.is_complex else np.float64)

    @property
    def _order(self) -> int:
        """The number of equations."""
        return self._matrix.order

    @property
    def _matrix(self) -> System:
        return self._factored.matrix

    @property
    def action(self) -> Action:
        """The action whose factors are in use, or will be made first."""
        return self._factored.ladder[self._factored.level]

    @property
    def format(self) -> str:
        """The method and format of the factors in use: ``lu fp32``, ``cholesky fp64``, ..."""
        return f"{self.action.method} {self.action[0]}"

    @property
    def history(self) -> tuple[str, ...]:
        """What was decided after solves, in words: better factors that have begun to pay."""
        return tuple(self._factored.history)

    def __repr__(self) -> str:
        kind = "sparse" if self._matrix.is_sparse else "dense"
        kind += " complex" if self._matrix.is_complex else ""
        return f"Factorization({kind} {self._order} x {self._order}, {self.format})"

    def refactor(self, A: Any) -> Self:
        """Go on with another matrix of the same shape and, if it is sparse, the same pattern.

        For Newton's method, time steps, circuits: the method, the formats and the analysis of the
        pattern are kept. The pattern is that of the stored entries, stored zeros included. A is
        copied, and factorized at the next solve. Solves that other threads have begun finish with
        the matrix they began with.

        Solves start with the format that the last one ended with. If that is higher than the first
        choice, the next lower one is tried again after eight refactorizations, then after sixteen,
        and so on.

        Parameters
        ----------
        A : (n, n) array_like or sparse

        Returns
        -------
        Factorization
            Itself.

        Raises
        ------
        ValueError
            If A has another shape or pattern, or is dense and the factored matrix sparse.

        Examples
        --------
        >>> F = rw.factor([[4.0, 1.0], [2.0, 3.0]])
        >>> F.refactor([[8.0, 2.0], [4.0, 6.0]]).solve([1.0, 2.0])
        array([0.05, 0.3 ])
        """
        start, before = perf_counter(), self._factored
        given, place = before.matrix, before.matrix.place
        with given.entered(A):
            there = A if place is None else place.array("A", A)
            if given.is_complex and not is_complex(there):  # a real A may follow a complex one
                there = there if is_sparse(there) else dense_array("A", there)
                there = there.astype(np.result_type(there.dtype, np.complex64))
            prepared = prepare(there, given.b.shape[1], place, copy=True)
            matrix = with_pattern_of(given, prepared)
        level = before.level
        with self._counting:
            self._renewals += 1
            if level and self._renewals >= self._patience:
                level, self._renewals, self._patience = level - 1, 0, 2 * self._patience
            self._factored, self._express = before.renewed(matrix, level), None
            self._features_seconds = perf_counter() - start
        return self

    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        """``A^-1 b`` for a vector or columns b, verified; a `Solution` with `full_output`.

        Many columns are solved in blocks, which bounds the memory needed beside b and x.

        Parameters
        ----------
        b : (n,) or (n, k) array_like or sparse
        trans : {"N", "T", "H", 0, 1, 2}
            ``"T"``, ``"H"``, 1 or 2: solve ``A' x = b`` with the same factors, through the same
            gate; if A is complex, ``"H"`` and 2 stand for the conjugate transpose. The names are
            those of SciPy's ``SuperLU.solve``, the numbers ``lu_solve``'s.
        full_output : bool

        Returns
        -------
        x : array, shaped as b
            A `Solution` if `full_output`.

        Raises
        ------
        SolveFailed
            If A is singular, or no answer passes the gate.

        Warns
        -----
        IllConditionedWarning
            If fewer than about three digits of x are right.

        Examples
        --------
        >>> F = rw.factor([[4.0, 1.0], [2.0, 3.0]])
        >>> F.solve([1.0, 2.0], trans="T")
        array([-0.1,  0.7])
        """
        factored, express = self._factored, self._express  # `refactor` does not change them
        if express is not None:
            start = perf_counter()
            found = express.solve(b, trans)
            if found is not None:
                seconds = perf_counter() - start
                return self._told(express, found, b, trans, seconds) if full_output else found.x
        if type(b) is np.ndarray and b.dtype == np.float64 and trans == "N" and not full_output:
            x = factored.solved_at_once(b, self._tol, self._accuracy)
            if x is not None:
                return x
        system = factored.matrix
        with ieee_arithmetic(), system.entered(b):
            taken = system.taken(b, trans)
            if taken.transposed:
                factored = factored.transposed
            try:
                solution = self._solve(factored, taken, full_output)
            except SolveFailed as failure:
                if failure.x is not None:
                    failure.x = taken.back(failure.x)
                raise
            return with_x(solution, taken.back) if full_output else taken.back(solution.x)

    def _told(
        self, express: ExpressFactors, found: ExpressAnswer, b: Any, trans: Any, seconds: float
    ) -> Solution:
        """An answer of the express factors with what `full_output` tells of it."""
        A, b = express.A, b.copy()
        if trans not in ("N", 0):
            A = A.T if trans in ("T", 1) or A.dtype.kind != "c" else A.T.conj()
        return solution_of(found, A, b, self._tol, seconds, lambda: express.solve(b, trans))

    def _solve(self, factored: Factored, taken: Taken, full_output: bool) -> Solution:
        """Climb for some columns at a time."""

        def tolerance(dtype: Any) -> float | None:
            given = factored.matrix.tolerance(self._tol, dtype)
            if taken.share == 1.0:
                return given
            usual = default_tolerance(self._order, FP32 if dtype == np.float32 else FP64)
            return (usual if given is None else given) * taken.share

        b = checked_columns(taken.columns, factored.matrix)
        blocks = scaled_blocks(b, factored.matrix)
        solutions = (self._climbed(factored, columns, full_output, tolerance) for columns in blocks)
        solution = joined(solutions, b.shape)
        if taken.share == 1.0 or not full_output:
            return solution
        return replace(
            solution,
            backward_error=solution.backward_error / taken.share,
            tolerance=solution.tolerance / taken.share,
            knowledge=solution.knowledge.times(1 / taken.share),
        )

    def _climbed(
        self,
        factored: Factored,
        columns: GivenColumns,
        full_output: bool,
        tolerance: Callable[[Any], float | None],
    ) -> Solution:
        """The answer for some columns, from the present rung on."""
        with self._counting:  # only the first solve pays for the decision, and is learned from
            features, self._features_seconds = self._features_seconds, 0.0
            learn, self._learn = self._learn, None
        algorithm = VerifiedSolve(tolerance(columns.dtype), self._budget, self._accuracy)
        try:
            answer = climb(algorithm, factored, columns, {"features": features})
        except SolveFailed:
            self._learn = learn
            raise
        factored.count(columns.B.shape[1], answer.attempts[-1].outer_iterations)
        if learn is not None:
            learn(answer.attempts, sum(answer.timings.values()))
        return answer.solution(self._reason, full_output)

    def slogdet(self) -> tuple[Any, float]:
        """The sign and the logarithm of the magnitude of the determinant, as NumPy's `slogdet`.

        It comes from a separate LU factorization in FP64, so it is the determinant of a matrix that
        differs from A by rounding errors. It is zero if A is known to be singular, or has a zero
        pivot in FP64.

        Returns
        -------
        sign : float or complex
            Of modulus 1; 0 if the determinant is zero.
        logarithm : float

        Examples
        --------
        >>> sign, logarithm = rw.factor([[0.0, 2.0], [1.0, 0.0]]).slogdet()
        >>> sign, round(logarithm, 6)
        (-1.0, 0.693147)
        """
        self._require_host("slogdet")
        of = complex_slogdet if self._matrix.is_complex else slogdet
        return of(self._factored)

    def det(self) -> Any:
        """The determinant of A; see `slogdet`. Zero or infinite where float64 cannot hold it.

        Returns
        -------
        float or complex

        Examples
        --------
        >>> round(rw.factor([[0.0, 2.0], [1.0, 0.0]]).det(), 12)
        -2.0
        """
        sign, logarithm = self.slogdet()
        with np.errstate(over="ignore", under="ignore"):
            det = sign * np.exp(logarithm) if sign else 0.0
            return complex(det) if self._matrix.is_complex else float(det)

    def inv(self) -> Any:
        """The inverse of A: each column solves ``A x = e_i`` and has passed the gate.

        To solve a system, `solve` is faster and more accurate than a product with the inverse.

        Returns
        -------
        (n, n) array

        Examples
        --------
        >>> rw.factor([[0.0, 2.0], [1.0, 0.0]]).inv()
        array([[0. , 1. ],
               [0.5, 0. ]])
        """
        if self._matrix.is_sparse:
            raise ValueError(
                "the inverse of a sparse matrix is dense; solve for what is needed, or pass "
                "solve(numpy.eye(n)) if all of it is"
            )
        self._require_host("inv")
        return self.solve(np.eye(self._order, dtype=self._matrix.dtype))

    def as_linear_operator(self) -> InverseOperator:
        """``A^-1`` as a `scipy.sparse.linalg.LinearOperator`: a preconditioner for systems like it.

        Products with it are solves with A, which pass the gate; ``rmatvec`` solves with A'.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator

        Examples
        --------
        >>> inverse = rw.factor([[0.0, 2.0], [1.0, 0.0]]).as_linear_operator()
        >>> inverse @ np.array([2.0, 3.0])
        array([3., 1.])
        """
        self._require_host("as_linear_operator")
        return InverseOperator(self)

    def _require_host(self, name: str) -> None:
        if not self._backend.on_host:
            raise TypeError(f"{name} is for factorizations on the CPU; pass factor(A.get())")

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has A and what was chosen for it; it makes its factors at its first solve."""
        if not self._backend.on_host:
            raise TypeError(
                "a Factorization stays on its GPU, as its factors do; send A, and call "
                "roundwise.factor(A) where it is needed"
            )
        factored = self._factored
        asked = factored._plan.asked
        plan = Plan(factored.ladder, self._reason, budget=self._budget, asked=asked)
        options = Options(self._tol, accuracy=self._accuracy)
        return _remade, (factored.matrix, plan, options, factored.level)


def solved_once(F: Factorization, b: Any, full_output: bool) -> Any:
    """Solve once, then release the factors' memory; a `Solution` does that once it is read."""
    F._factored.keep_choice()
    answer = F.solve(b, full_output=full_output)
    if not full_output:
        F._factored.discard()
    elif (factors := F._factored.handed_over()) is not None:
        answer.knowledge.releases(factors.discard)
    return answer


def with_x(answer: Any, back: Callable[[Any], Any]) -> Any:
    """An answer whose x went through `back`: an array, or a `Solution`."""
    return replace(answer, x=back(answer.x)) if isinstance(answer, Solution) else back(answer)


def _remade(system: System, plan: Plan, options: Options, level: int) -> Factorization:
    """What was pickled, starting from the rung that it had reached."""
    F = Factorization(system, plan, options)
    F._factored = F._factored.renewed(system, level)
    return F


def _with_exact_residuals(ladder: tuple[Action, ...]) -> tuple[Action, ...]:
    """The same actions with residuals in FP64X2, each once."""
    return tuple(dict.fromkeys(Action((*action[:3], FP64X2), action.method) for action in ladder))
