"""`Factored`: one matrix, and the factors of the rung of its ladder that solves have reached."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from roundwise._forking import cached_property, fork_safe_lock
from roundwise.actions import Action
from roundwise.algorithms.accuracy import default_tolerance, judged, target_of, within
from roundwise.algorithms.scaling import are_moderate
from roundwise.backends import Analysis, ArithmeticFailure, Factors, Matrix
from roundwise.backends.arrays import column_norms
from roundwise.backends.contract import AtOnce, NoAnalysis, ToRefine, Vector
from roundwise.backends.engines.iterative import IterativeFactors
from roundwise.backends.engines.supernodal import SupernodalEngine
from roundwise.backends.native.sparse import EngineAnalysis, engine_methods
from roundwise.backends.permuted import TransposedFactors
from roundwise.costs.prices import current_prices, device_prices
from roundwise.formats import FP32, FP64, FloatFormat
from roundwise.machine.threads import free_memory, spinning_threads_aside
from roundwise.methods import METHODS
from roundwise.methods.contract import Shape
from roundwise.solver.budgets import gmres_budget, shape_of
from roundwise.solver.decide import Plan
from roundwise.solver.inputs import BLOCK
from roundwise.solver.system import System
from roundwise.solver.trust.examining import SUSPICIOUS, Examiner


@dataclass(frozen=True, eq=False)
class Tried:
    """What one compiled call made of a rung, with factors that it found or made."""

    found: AtOnce | None  # what has passed the gate; None if refinement does not get there
    x: Vector | None  # its X in the type of the answer
    failure: ArithmeticFailure | None  # why there are no factors
    is_harmless: bool  # nothing is to be examined: X is the answer
    factor_seconds: float
    seconds: float  # of all
    tolerance: float  # of the gate
    factors: Factors | None = None

    def is_answer(self, full_output: bool) -> bool:
        """Whether nothing is left to find out.

        If somebody asks, a climb tells the error of an x that was rounded to single precision.
        """
        return self.is_harmless and not (full_output and self.x.dtype != np.float64)  # type: ignore[union-attr]

    @property
    def columns(self) -> AtOnce | None:
        """What was found, as columns, also where b is a vector."""
        found = self.found
        if found is None or found.X.ndim == 2:
            return found
        return found._replace(X=found.X[:, None], R=found.R[:, None])


class Factored:
    """A matrix that does not change, and its factors, made when they are first asked for.

    `renewed` makes the `Factored` of another matrix; solves that have begun go on with this one.
    Both share the analyses of the pattern, under one lock.
    """

    def __init__(
        self,
        matrix: System,
        plan: Plan,
        analyses: dict[str, Analysis] | None = None,
        once: bool = False,
    ) -> None:
        self.matrix, self.ladder, self._backend = matrix, plan.ladder, matrix.backend
        self.plan = plan
        self._level = 0
        self._factors: Factors | None = None  # of this level
        # By method: a climb analyses a pattern once.
        self._analyses: dict[str, Analysis] = {} if analyses is None else analyses
        self._inherited = set(self._analyses)  # methods whose analysis saw another matrix
        self._matrices: dict[FloatFormat, Matrix] = {}  # A in the formats of products
        # What it protects is consistent after every statement; one solve is one thread's.
        self._climbing = nullcontext() if once else fork_safe_lock()
        dense = self._backend.on_host and not matrix.is_sparse
        self._fixed = once or plan.asked or matrix.b.shape[1] > 1 or not dense  # see `count`
        self._spent = 0.0  # seconds that corrections with low factors were priced at
        self._upgraded_from: int | None = None  # the rung before `count` chose FP64
        self.history: list[str] = []
        """What was decided after solves, in words."""

    @property
    def level(self) -> int:
        """The rung that solves start from."""
        return self._level

    def renewed(self, matrix: System, level: int) -> Factored:
        """The same for another matrix with the same pattern, starting from this rung."""
        plan = replace(self.plan, orders=None, direct=None)  # those of this matrix
        if self._upgraded_from is not None and level == self._level:
            level = self._upgraded_from  # that many solves paid for FP64 says nothing of the next A
        other = Factored(matrix, plan, self._analyses)
        other._level, other._climbing = level, self._climbing
        return other

    def factors_of(self, level: int) -> Factors:
        """Factors of this rung, made if they do not exist yet. Later solves start there."""
        with self._climbing:  # what one thread makes, others wait for
            if level < self._level:  # another thread has climbed on
                return self._made(level)
            here, higher = self.ladder[self._level], self.ladder[level]
            if (here.method, here[0]) != (higher.method, higher[0]):
                self._factors = None
            self._level = level
            if self._factors is None:
                self._factors = self._made(level)
            return self._factors

    def tried_at_once(self, b: Any, tol: float | None, accuracy: str) -> Tried | None:
        """The present rung for these columns by one compiled call; None if it is not for that.

        It is for systems that were not scaled, dense ones, and sparse ones of real numbers; b is a
        vector or columns of float32 or float64, of a complex system in its real form. What it gives
        is what `VerifiedSolve.rung` would: the same call refines there, and `climb` goes on from it
        wherever it is not the answer.
        """
        if accuracy != "backward" or not self._suits_one_call:
            return None
        n, action = self.matrix.n, self.ladder[self.level]
        if b.ndim not in (1, 2) or len(b) != n or not 0 < b.size <= BLOCK:
            return None
        matrix, kind, examiner = self.matrix, self.matrix.kind, self.examiner
        dtype = np.float32 if b.dtype == matrix.dtype == np.float32 else np.float64
        tolerance = matrix.tolerance(tol, dtype)
        if tolerance is None:
            tolerance = default_tolerance(n, FP32 if dtype == np.float32 else FP64)
        target = target_of(tolerance, dtype, matrix.is_complex)
        unknown = self._backend.residual_error(FP64, n, *kind)
        if not (action[1] is action[3] is FP64 and unknown < target / 2):
            return None
        B = np.asfortranarray(b, dtype=np.float64)
        norms = column_norms(B if b.ndim == 2 else B[:, None])
        if not (math.isfinite(norms.sum()) and are_moderate(norms)):
            return None
        start = perf_counter()
        try:
            factors = self.factors_of(self.level)
        except ArithmeticFailure as failure:
            made = perf_counter() - start
            return Tried(None, None, failure, False, made, made, tolerance)
        made, A = perf_counter(), self.in_format(FP64)
        try:
            found = factors.refined(ToRefine(A, matrix.norm, B, within(target, n, unknown)))
        except ArithmeticFailure as failure:
            seconds = made - start, perf_counter() - start
            return Tried(None, None, failure, False, *seconds, tolerance)
        if found is None:
            seconds = made - start, perf_counter() - start
            return Tried(None, None, None, False, *seconds, tolerance)
        x, _, harmless = judged(found, dtype, tolerance, unknown, matrix.is_complex)
        if harmless:
            stretched = SUSPICIOUS * found.stretch > 1.0
            harmless = examiner.is_harmless(factors, stretched, found.largest)
        return Tried(
            found, x, None, harmless, made - start, perf_counter() - start, tolerance, factors
        )

    @cached_property
    def _suits_one_call(self) -> bool:
        matrix = self.matrix
        plain = matrix.place is None and not (matrix.is_sparse and matrix.is_complex)
        return plain and matrix.rows is None and matrix.columns is None

    def gmres_budget(self, level: int, factors: Factors) -> int | None:
        """GMRES iterations that these factors of a rung are worth; None if nobody knows."""
        matrix = self.matrix
        if self.plan.direct is not None or matrix.n == 0:
            return None
        profiled, machine = matrix.profiled, self._backend.machine
        shape = shape_of(factors, profiled.n, profiled.A.nnz if matrix.is_sparse else 0)
        if matrix.place is None:
            return gmres_budget(current_prices(), self.ladder, level, shape)
        assert machine is not None
        return gmres_budget(device_prices(machine), self.ladder, level, shape)

    def count(self, columns: int, steps: int) -> None:
        """Count corrections of a solve; once they cost what FP64 factors do, these come next.

        So all solves together never take much more than twice as long as with the better choice in
        hindsight. A caller who has named the action, or has said how many columns to
        expect, has chosen.
        """
        action = self.ladder[self._level]
        if steps == 0 or action[0] == FP64 or self._fixed:
            return
        higher = [
            level
            for level in range(self._level + 1, len(self.ladder))
            if self.ladder[level][0] == FP64 and self.ladder[level].method == action.method
        ]
        method, n = METHODS.get(action.method), self.matrix.profiled.n
        if not higher or method is None or method.price is None:
            return
        prices, shape = current_prices(), Shape(n, n * n, columns)
        low, high = (method.price(prices, shape, fmt) for fmt in (action[0].name, FP64.name))
        if low is None or high is None:
            return
        self._spent += steps * low.step
        if self._spent > high.factor and self._lacks_memory():
            self._spent = 0.0  # ask again when corrections have cost as much once more
        elif self._spent > high.factor:
            with self._climbing:
                if self._upgraded_from is None and self.ladder[self._level] == action:
                    self._upgraded_from, self._level, self._factors = self._level, higher[0], None
                    self.history.append(
                        f"FP64 factors from the next solve on: corrections with {action[0]} ones "
                        "have cost as much."
                    )

    def _lacks_memory(self) -> bool:
        """Whether FP64 factors, and the array that they are made of, would exceed what is free."""
        entries = float(self.matrix.n) ** 2 / (2 if self.matrix.is_complex else 1)
        lacks = 2 * FP64.storage_bytes * entries > free_memory()
        if lacks and not self.history:
            self.history.append("FP64 factors would pay, but there is no memory for them.")
        return lacks

    def discard(self) -> None:
        """Tells that there will be no other solve."""
        if self._factors is not None:
            self._factors.discard()
            self._factors = None

    def handed_over(self) -> Factors | None:
        """The factors, for the caller to discard: there will be no other solve."""
        factors, self._factors = self._factors, None
        return factors

    def _made(self, level: int) -> Factors:
        action, A = self.ladder[level], self.matrix.A
        if action.method not in self._analyses:
            self._analyses[action.method] = self._analysed(action.method)
        analysis = self._analyses[action.method]
        if isinstance(analysis, EngineAnalysis) and level + 1 < len(self.ladder):
            factors = analysis.factorize(A, action[0], self.plan.time_limit)
            if isinstance(factors, IterativeFactors) and self.plan.direct is not None:
                factors.granted = self.plan.direct.grants
            return factors
        on_cores = self._backend.on_host and not self.matrix.is_sparse
        with spinning_threads_aside(self.matrix.n if on_cores else 0):
            if not isinstance(analysis, NoAnalysis):
                return analysis.factorize(A, action[0])
            matrix = self._backend.matrix(A, action[0])
            if self.matrix.rounded:
                matrix.offer(self.matrix.rounded.pop())
            return analysis.of(matrix)

    def _analysed(self, method: str) -> Analysis:
        """The analysis by a method, which reuses the orders found when the method was chosen."""
        A, orders = self.matrix.A, self.plan.orders
        if orders is None or method not in engine_methods():
            return self._backend.analyse(A, method)
        analysis = EngineAnalysis(self._backend, A, method, orders)
        # Orders take as much memory as A. After the analysis only the one that it uses is kept, for
        # the next engine of ours (LDL' after Cholesky).
        engine, ordering = engine_methods()[method]
        own = isinstance(engine, SupernodalEngine)
        self.plan = replace(self.plan, orders=orders.only(ordering) if own else None)
        return analysis

    def ladder_behind(self, level: int) -> tuple[Action, ...]:
        """The ladder, for which the direct way is planned now if an iterative one has failed."""
        with self._climbing:
            direct = self.plan.direct
            if direct is not None:
                self.ladder = (*self.ladder[: level + 1], *direct.plan.ladder)
                reason = f"{self.plan.reason} It was given up. {direct.plan.reason}"
                self.plan = replace(direct.plan, ladder=self.ladder, reason=reason)
        return self.ladder

    def forgets_analysis(self, level: int) -> bool:
        """Drop the analysis if it was made for other values and depends on them; return whether.

        If it was dropped, the rung is worth another attempt.
        """
        method = self.ladder[level].method
        with self._climbing:
            analysis = self._analyses.get(method) if method in self._inherited else None
            if analysis is None or not analysis.depends_on_values:
                return False
            self._inherited.discard(method)
            del self._analyses[method]
            if level == self._level:
                self._factors = None
            return True

    def in_format(self, fmt: FloatFormat) -> Matrix:
        """A, to multiply with in a format."""
        if (known := self._matrices.get(fmt)) is None:
            known = self._matrices[fmt] = self._backend.matrix(self.matrix.A, fmt)
        return known

    @cached_property
    def examiner(self) -> Examiner:
        """Examines A: its condition, and whether it is singular."""
        return Examiner(self.matrix)

    @cached_property
    def transposed(self) -> Factored:
        """The transpose of A with the same factors, on the same rung."""
        return _Transposed(self)


class _Transposed(Factored):
    """``A'``; factors that it makes are those of A."""

    def __init__(self, given: Factored) -> None:
        super().__init__(given.matrix.transposed(given._backend), given.plan)
        self._given = given
        self._kept: tuple[Factors, TransposedFactors] | None = None

    @property
    def level(self) -> int:
        return self._given.level

    def factors_of(self, level: int) -> Factors:
        given, kept = self._given.factors_of(level), self._kept
        if kept is None or kept[0] is not given:  # what is known of factors is known by identity
            kept = self._kept = given, TransposedFactors(given)
        return kept[1]

    def count(self, columns: int, steps: int) -> None:
        self._given.count(columns, steps)

    def forgets_analysis(self, level: int) -> bool:
        return self._given.forgets_analysis(level)


def with_pattern_of(first: System, matrix: System) -> System:
    """A matrix with the index arrays of the first one, or an error if its pattern differs."""
    if matrix.is_sparse != first.is_sparse:
        kinds = ["sparse" if one.is_sparse else "dense" for one in (first, matrix)]
        raise ValueError(f"the factored matrix is {kinds[0]}, A is {kinds[1]}; pass factor(A)")
    if matrix.is_complex and not first.is_complex:
        raise TypeError("the factored matrix is real, A is complex; pass factor(A)")
    if matrix.n != first.n:
        old, new = first.order, matrix.order
        raise ValueError(
            f"the factored matrix is {old} x {old}, A is {new} x {new}; pass a matrix of that "
            "shape, or call factor(A)"
        )
    if not first.is_sparse:
        return matrix
    old, new = first.A, matrix.A
    if not (np.array_equal(old.indptr, new.indptr) and np.array_equal(old.indices, new.indices)):
        raise ValueError(
            f"A stores other entries than the factored matrix ({new.nnz} and {old.nnz} of them); "
            "store zeros where only the other one has numbers, or call factor(A)"
        )
    same = type(new)((new.data, old.indices, old.indptr), shape=old.shape)
    same.has_canonical_format = True  # as `old`
    return replace(matrix, A=same)
