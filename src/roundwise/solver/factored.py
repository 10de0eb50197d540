"""`Factored`: one matrix, and the factors of the rung of its ladder that solves have reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roundwise._forking import cached_property, fork_safe_lock
from roundwise.algorithms import Stage
from roundwise.backends import Analysis, Factors, Matrix
from roundwise.backends.contract import NoAnalysis
from roundwise.backends.engines.supernodal import SupernodalEngine
from roundwise.backends.native.sparse import EngineAnalysis, engine_methods
from roundwise.backends.transposed import TransposedFactors
from roundwise.formats import FloatFormat
from roundwise.machine.spinning import spinning_threads_aside
from roundwise.solver.decide import Plan
from roundwise.solver.system import System
from roundwise.solver.trust.examining import Examiner


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
    ) -> None:
        self.matrix, self.ladder, self._backend = matrix, plan.ladder, matrix.backend
        self.plan = plan
        self._level = 0
        self._factors: Factors | None = None  # of this level
        # By method: a climb analyses a pattern once.
        self._analyses: dict[str, Analysis] = {} if analyses is None else analyses
        self._inherited = set(self._analyses)  # methods whose analysis saw another matrix
        self._matrices: dict[FloatFormat, Matrix] = {}  # A in the formats of products
        self._climbing = fork_safe_lock()  # what it protects is consistent after every statement

    @property
    def level(self) -> int:
        """The rung that solves start from."""
        return self._level

    def renewed(self, matrix: System, level: int) -> Factored:
        """The same for another matrix with the same pattern, starting from this rung."""
        plan = replace(self.plan, orders=None)  # those of this matrix
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
            return analysis.factorize(A, action[0], self.plan.time_limit)
        on_cores = self._backend.on_host and not self.matrix.is_sparse
        with spinning_threads_aside(self.matrix.n if on_cores else 0):
            if isinstance(analysis, NoAnalysis):
                rounded = self.matrix.rounded
                return analysis.factorize(A, action[0], rounded.pop() if rounded else None)
            return analysis.factorize(A, action[0])

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

    def matrix_of(self, stage: Stage) -> Matrix:
        """A in the format of a stage."""
        if stage.fmt not in self._matrices:
            self._matrices[stage.fmt] = stage.matrix(self.matrix.A)
        return self._matrices[stage.fmt]

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

    @property
    def level(self) -> int:
        return self._given.level

    def factors_of(self, level: int) -> Factors:
        return TransposedFactors(self._given.factors_of(level))

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
