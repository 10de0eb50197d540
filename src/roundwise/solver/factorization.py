"""`Factorization`: factor once, solve many, and climb to more precision only when needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from time import perf_counter
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from roundwise._csr import checked_sparse
from roundwise._forking import fork_safe_lock
from roundwise.actions import Action
from roundwise.algorithms import Outcome, VerifiedSolve
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.backends import Analysis
from roundwise.backends.arrays import is_sparse
from roundwise.backends.native.structured import Found
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.machine.threads import ieee_arithmetic
from roundwise.solver.climb import climb, told
from roundwise.solver.decide import Learn, Plan
from roundwise.solver.derived import InverseOperator, complex_slogdet, slogdet
from roundwise.solver.express import ExpressAnswer, ExpressFactors, solution_of
from roundwise.solver.express_factors import (
    DenseFactors,
    StructuredFactors,
    ThreadedFactors,
    kept_factors,
)
from roundwise.solver.express_structured import UNKNOWN
from roundwise.solver.factored import Factored, Tried, with_pattern_of
from roundwise.solver.frameworks import framework_of
from roundwise.solver.inputs import (
    GivenColumns,
    checked_columns,
    dense_array,
    given_array,
    is_complex,
    scaled_blocks,
)
from roundwise.solver.places import is_on_device, like_given, on_host
from roundwise.solver.prepare import AT_ONCE, BACKEND, PLAIN, Options, Wanted, prepare
from roundwise.solver.solution import Solution, SolveFailed, joined
from roundwise.solver.stacks import StackedSolution
from roundwise.solver.system import System, Taken

RETRY_AFTER = 8
"""Refactorizations after which a format that once did not suffice is tried again."""


Decided = tuple[System, Plan, float]
"""A prepared system, what to try for it, and the seconds that took."""


class SmallFactors(NamedTuple):
    """How a `Factorization` of small dense matrices goes on: what `roundwise.factor` passes.

    Express factors are made of each matrix at once. Only if they, or an answer of theirs, are
    refused, a system is prepared and decided on.
    """

    factorize: Callable[[Any], ExpressFactors | None]
    decide: Callable[[Any], Decided]
    action: Action
    reason: str


@dataclass
class _Present:
    """What solves use until the next `refactor`: express factors, and what takes over from them."""

    express: ExpressFactors | None
    made: Factored | None
    make: Callable[[], Factored]

    @property
    def factored(self) -> Factored:
        if self.made is None:
            self.made = self.make()  # by two threads, perhaps: the first one's is not used then
        return self.made

    @property
    def asked_first(self) -> ExpressFactors | None:
        """The express factors, unless a solve has climbed to better ones."""
        return None if self.made is not None and self.made.level else self.express


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
        once: bool = False,
    ) -> None:
        self._begin(options, once)
        self._present = _Present(express, None, dict)  # type: ignore[arg-type]
        self._present.made = self._general((system, plan, features_seconds), analyses)

    @classmethod
    def _of_small(
        cls, express: ExpressFactors, small: SmallFactors, options: Options
    ) -> Factorization:
        """That of a small dense matrix, whose factors exist."""
        F = cls.__new__(cls)
        F._begin(options)
        F._small, F._present = small, F._present_with(express, small)
        return F

    def _begin(self, options: Options, once: bool = False) -> None:
        self._tol, self._accuracy = options.tol, options.accuracy
        self._features_seconds = 0.0
        self._learn: Learn | None = None
        # What each of several threads may change; those of a single solve are none.
        self._counting = nullcontext() if once else fork_safe_lock()
        self._once = once
        self._renewals, self._patience = 0, RETRY_AFTER
        self._small: SmallFactors | None = None

    def _present_with(self, express: ExpressFactors, small: SmallFactors) -> _Present:
        def made() -> Factored:
            with ieee_arithmetic():
                return self._general(small.decide(express.A))

        return _Present(express, None, made)

    def _general(self, decided: Decided, analyses: dict[str, Analysis] | None = None) -> Factored:
        """What climbs, for a system that was decided on."""
        system, plan, self._features_seconds = decided
        self._learn = plan.learn
        if self._accuracy == "forward":
            plan = replace(plan, ladder=_with_exact_residuals(plan.ladder))
        return Factored(system, plan, analyses, self._once)

    @property
    def shape(self) -> tuple[int, int]:
        return self._order, self._order

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64, or complex128 of a complex A: that of answers in double precision."""
        return np.dtype(np.complex128 if self._is_complex else np.float64)

    @property
    def _is_complex(self) -> bool:
        express = self._present.express
        return self._matrix.is_complex if express is None else express.A.dtype.kind == "c"

    @property
    def _order(self) -> int:
        """The number of equations."""
        express = self._present.express
        return self._matrix.order if express is None else int(express.A.shape[0])

    @property
    def _factored(self) -> Factored:
        return self._present.factored

    @property
    def _matrix(self) -> System:
        return self._factored.matrix

    @property
    def _is_sparse(self) -> bool:
        express = self._present.express
        return self._matrix.is_sparse if express is None else is_sparse(express.A)

    @property
    def action(self) -> Action:
        """The action whose factors are in use, or will be made first."""
        present = self._present
        if self._small is not None and present.asked_first is not None:
            return self._small.action
        return present.factored.ladder[present.factored.level]

    @property
    def format(self) -> str:
        """The method and format of the factors in use: ``lu fp32``, ``cholesky fp64``, ..."""
        return f"{self.action.method} {self.action[0]}"

    @property
    def history(self) -> tuple[str, ...]:
        """What was decided after solves, in words: better factors that have begun to pay."""
        return tuple(self._factored.history)

    def __repr__(self) -> str:
        kind = "sparse" if self._is_sparse else "dense"
        kind += " complex" if self._is_complex else ""
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
        if self._small is not None:
            with ieee_arithmetic():
                there = self._like_before(A)
                express = None if there is None else self._small.factorize(there)
            if express is not None:
                self._present = self._present_with(express, self._small)
                return self
        start, before = perf_counter(), self._factored
        given, place = before.matrix, before.matrix.place
        with ieee_arithmetic(), given.entered(A):
            there = A if place is None else place.array("A", A)
            if given.is_complex and not is_complex(there):  # a real A may follow a complex one
                there = checked_sparse(there, "A") if is_sparse(there) else given_array("A", there)
                there = there.astype(np.result_type(there.dtype, np.complex64))
            columns, backend = given.b.shape[1], BACKEND if place else given.backend
            prepared = prepare(there, columns, place, copy=True, backend=backend)
            matrix = with_pattern_of(given, prepared)
        level = before.level
        with self._counting:
            self._renewals += 1
            if level and self._renewals >= self._patience:
                level, self._renewals, self._patience = level - 1, 0, 2 * self._patience
            self._present = _Present(None, before.renewed(matrix, level), self._present.make)
            self._features_seconds = perf_counter() - start
        return self

    def _like_before(self, A: Any) -> Any:
        """An A of the same kind as the one before; None if it is of another."""
        if is_sparse(A) != self._is_sparse:
            return None
        array = A if is_sparse(A) else dense_array("A", A, real=False)
        if array.shape != self.shape or (array.dtype.kind == "c" and not self._is_complex):
            return None  # the general path refuses it
        if self._is_complex and array.dtype.kind != "c":  # a real A may follow a complex one
            array = checked_sparse(array, "A") if is_sparse(array) else array
            array = array.astype(np.result_type(array.dtype, np.complex64))
        return array

    @overload
    def solve(self, b: Any, trans: Any = "N", *, full_output: Literal[True]) -> Solution: ...
    @overload
    def solve(
        self, b: NDArray[Any], trans: Any = "N", *, full_output: Literal[False] = False
    ) -> NDArray[Any]: ...
    @overload
    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any: ...
    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        """``A^-1 b`` for a vector or columns b, verified; a `Solution` with `full_output`.

        Many columns are solved in blocks, which bounds the memory needed beside b and x.

        Parameters
        ----------
        b : (n,) or (n, k) array_like or sparse
        trans : {"N", "T", "H", 0, 1, 2}
            ``"T"``, ``"H"``, 1 or 2: solve ``A' x = b``, through the same gate; if A is complex,
            ``"H"`` and 2 stand for the conjugate transpose. The factors serve both; only small
            dense matrices are factorized once more at the first such solve. The names are those
            of SciPy's ``SuperLU.solve``, the numbers ``lu_solve``'s.
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
        present = self._present  # `refactor` does not change it
        if (express := present.asked_first) is not None:
            start = perf_counter()
            found = express.solve(b, trans)
            if found is not None:
                seconds = perf_counter() - start
                return self._told(express, found, b, trans, seconds) if full_output else found.x
        if type(b) is not np.ndarray and (framework := framework_of(b)) is not None:
            return framework.solve_with(self, b, trans)
        factored = present.factored
        system = factored.matrix
        if system.backend.sparse_on != "cpu" and is_on_device(b):
            answer = self.solve(on_host(b), trans, full_output=full_output)
            return with_x(answer, lambda x: like_given(x, b))
        with ieee_arithmetic(), system.entered(b):
            taken = system.taken(b, trans)
            if taken.transposed:
                factored = factored.transposed
            tried = None
            if type(b) is np.ndarray and taken.share == 1.0:
                tried = factored.tried_at_once(taken.columns, self._tol, self._accuracy)
            if tried is not None and not self._learn and tried.is_answer(full_output):
                assert tried.found is not None
                features, self._features_seconds = self._features_seconds, 0.0
                level = factored.level
                factored.count(len(tried.found.errors), len(tried.found.history) // 2)
                if not full_output:
                    return taken.back(tried.x)
                return with_x(told(factored, level, tried, taken.columns, features), taken.back)
            try:
                solution = self._solve(factored, taken, full_output, tried)
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
        reason = AT_ONCE if self._small is None else self._small.reason
        return solution_of(found, A, b, self._tol, seconds, lambda: express.solve(b, trans), reason)

    def _solve(
        self, factored: Factored, taken: Taken, full_output: bool, tried: Tried | None
    ) -> Solution:
        """Climb for some columns at a time; what was `tried` was so for all of them."""

        def tolerance(dtype: Any) -> float | None:
            given = factored.matrix.tolerance(self._tol, dtype)
            if taken.share == 1.0:
                return given
            usual = default_tolerance(self._order, FP32 if dtype == np.float32 else FP64)
            return (usual if given is None else given) * taken.share

        b = checked_columns(taken.columns, factored.matrix)
        blocks = scaled_blocks(b, factored.matrix)
        solutions = (
            self._climbed(factored, columns, full_output, tolerance, tried) for columns in blocks
        )
        solution = next(solutions)
        if solution.x.shape != b.shape:
            solution = joined(chain((solution,), solutions), b.shape)
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
        tried: Tried | None,
    ) -> Solution:
        """The answer for some columns, from the present rung on."""
        with self._counting:  # only the first solve pays for the decision, and is learned from
            features, self._features_seconds = self._features_seconds, 0.0
            learn, self._learn = self._learn, None
        algorithm = VerifiedSolve(tolerance(columns.dtype), accuracy=self._accuracy)
        try:
            answer = climb(algorithm, factored, columns, {"features": features}, tried)
        except SolveFailed:
            self._learn = learn
            raise
        factored.count(columns.B.shape[1], answer.attempts[-1].outer_iterations)
        if learn is not None:
            learn(answer.attempts, sum(answer.timings.values()))
        return answer.solution(factored.plan.reason, full_output)

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
        of = complex_slogdet if self._is_complex else slogdet
        with ieee_arithmetic(), self._factored.matrix.entered():
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
            return complex(det) if self._is_complex else float(det)

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
        if self._is_sparse:
            raise ValueError(
                "the inverse of a sparse matrix is dense; solve for what is needed, or pass "
                "solve(numpy.eye(n)) if all of it is"
            )
        express = self._present.express
        given = self._matrix.dtype if express is None else express.A.dtype
        single = given in (np.float32, np.complex64)
        xp: Any = np if self._is_on_host else self._matrix.place.backend.xp  # type: ignore[union-attr]
        return self.solve(xp.eye(self._order, dtype=np.float32 if single else np.float64))

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

    @property
    def _is_on_host(self) -> bool:
        return self._present.express is not None or self._matrix.backend.on_host

    def _require_host(self, name: str) -> None:
        if not self._is_on_host:
            raise TypeError(f"{name} is for factorizations on the CPU; pass factor(A.get())")

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has A and what was chosen for it; it makes its factors at its first solve."""
        if not self._is_on_host:
            raise TypeError(
                "a Factorization stays on its GPU, as its factors do; send A, and call "
                "roundwise.factor(A) where it is needed"
            )
        factored = self._factored
        plan = replace(factored.plan, learn=None, orders=None, time_limit=None, direct=None)
        options = Options(self._tol, accuracy=self._accuracy)
        A, express = None, None if self._is_sparse else self._present.express
        factor = structure = None
        if self._small is not None and isinstance(express, DenseFactors | ThreadedFactors):
            A, factor, structure = express.A, express.factor, express.structure
        return _remade, (factored.matrix, plan, options, factored.level, A, factor, structure)


def solved_once(
    F: Factorization, b: Any, full_output: bool, before: tuple[Outcome, ...] = ()
) -> Any:
    """Solve once, then release the factors' memory; a `Solution` does that once it is read.

    `before` are attempts that failed: the first rungs of what is told.
    """
    try:
        answer = F.solve(b, full_output=full_output)
    except SolveFailed as failure:
        failure.attempts = (*before, *failure.attempts)
        raise
    if full_output and before:
        spent = answer.timings["factor"] + sum(one.seconds or 0.0 for one in before)
        attempts, timings = (*before, *answer.attempts), answer.timings | {"factor": spent}
        answer = replace(answer, attempts=attempts, timings=timings, status="escalated")
    if not full_output:
        F._factored.discard()
    elif (factors := F._factored.handed_over()) is not None:
        answer.knowledge.releases(factors.discard)
    return answer


def with_x(answer: Any, back: Callable[[Any], Any]) -> Any:
    """An answer whose x went through `back`: an array, or what `full_output` returns."""
    if isinstance(answer, StackedSolution):
        return answer.returned(back)
    return replace(answer, x=back(answer.x)) if isinstance(answer, Solution) else back(answer)


def _remade(
    system: System,
    plan: Plan,
    options: Options,
    level: int,
    A: NDArray[Any] | None = None,
    factor: str | None = None,
    structure: Found = UNKNOWN,
) -> Factorization:
    """What was pickled, starting from the rung that it had reached; A had express factors."""
    with ieee_arithmetic():
        express: ExpressFactors | None = None
        if A is not None and factor is not None:
            wanted = Wanted(options.tol, factor, options.forward)
            if structure == UNKNOWN:
                express = kept_factors(A, wanted)
            else:
                express = StructuredFactors(A, wanted, structure)
        F = Factorization(system, plan, options, express=express)
        F._present.made = F._factored.renewed(system, level)
        return F


def _with_exact_residuals(ladder: tuple[Action, ...]) -> tuple[Action, ...]:
    """The same actions with residuals in FP64X2, each once."""
    return tuple(dict.fromkeys(Action((*action[:3], FP64X2), action.method) for action in ladder))
