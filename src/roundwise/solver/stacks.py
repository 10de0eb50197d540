"""Stacks of dense systems, ``(..., n, n)``, with NumPy's rules of broadcasting.

Small systems are solved by one compiled call, which shares them among threads and verifies each
answer (`express_stack`). Those that do not pass the gate, or whose pivots are suspicious, and large
ones are solved one by one as any other system.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from roundwise.backends.arrays import array_module
from roundwise.machine.threads import factorization_threads
from roundwise.solver.express import express_stack, is_compiled
from roundwise.solver.inputs import checked_shapes, dense_array
from roundwise.solver.solution import Solution, SolveFailed

Array = NDArray[Any]
Solve = Callable[[Array, Array], Any]


@dataclass(frozen=True, eq=False)
class StackedSolution:
    """The verified answers of a stack, and how each came about.

    ``solution[i]``, or ``solution[i, j]`` where A and b stack to two dimensions, is the `Solution`
    of one system.

    Parameters
    ----------
    x : array
        All answers, as without `full_output`.
    parts : array of Solution
        One for each system, in the shape of the stack.

    Examples
    --------
    >>> A = np.array([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [0.0, 1.0]]])
    >>> solution = rw.solve(A, np.ones(2), full_output=True)
    >>> solution.x
    array([[0.5 , 0.25],
           [0.  , 1.  ]])
    >>> solution[1].status
    'accepted'
    """

    x: Array = field(repr=False)
    parts: NDArray[Any] = field(repr=False)  # of objects

    def __getitem__(self, index: Any) -> Any:
        return self.parts[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the stack."""
        return self.parts.shape

    @property
    def status(self) -> str:
        """``"escalated"`` if one of them is."""
        statuses: list[str] = [one.status for one in self.parts.flat]
        return max(statuses, key=("accepted", "escalated").index)

    @property
    def backward_error(self) -> float:
        """The largest."""
        return float(np.max([one.backward_error for one in self.parts.flat]))

    @property
    def forward_error_bound(self) -> float:
        """The largest."""
        return float(np.max([one.forward_error_bound for one in self.parts.flat]))

    @property
    def condition(self) -> float:
        """The largest."""
        return float(np.max([one.condition for one in self.parts.flat]))

    @property
    def seconds(self) -> float:
        return float(sum(one.seconds for one in self.parts.flat))

    def explain(self) -> str:
        """What was used how often, and the story of the system with the largest error."""
        actions = Counter(one.action for one in self.parts.flat)
        used = ", ".join(f"{action} for {count}" for action, count in actions.most_common())
        worst = int(np.argmax([one.forward_error_bound for one in self.parts.flat]))
        place = tuple(int(i) for i in np.unravel_index(worst, self.shape))
        return (
            f"{self.parts.size} systems were solved one by one: {used}.\n"
            f"The one with the largest error is number {place}:\n{self.parts[place].explain()}"
        )


def solve_stack(
    A: Array, b: Array, one: Solve, tol: float | None, bound: int, full_output: bool
) -> Any:
    """The answers of all systems. `one` solves a single one; systems with n < bound are small."""
    stack, columns = checked_shapes(A, b)
    n, k = columns.shape[-2:]
    if A.size == n * n:  # one matrix for all: a solve for all columns
        spread = array_module(A).broadcast_to(columns, (*stack, n, k)).reshape(-1, n, k)
        answer = one(A.reshape(n, n), spread.transpose(1, 0, 2).reshape(n, -1))
        found = answer.x if full_output else answer
        X = found.reshape(n, -1, k).transpose(1, 0, 2)
        if full_output:
            return _stacked([replace(answer, x=x) for x in X], stack, b.ndim == 1)
        X = X.reshape((*stack, n, k))
    elif n < bound and is_compiled(n, A, columns) and not full_output:
        X = _solve_together(A, columns, stack, one, tol)
    else:
        systems = _systems(A, columns, stack)
        answers = [_solved(one, matrix, B, place) for place, matrix, B in systems]
        if full_output:
            return _stacked(answers, stack, b.ndim == 1)
        X = array_module(A).stack(answers).reshape((*stack, n, k))
    return X[..., 0] if b.ndim == 1 else X


def _systems(
    A: Array, columns: Array, stack: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """The place, the matrix and the right-hand sides of each."""
    xp = array_module(A)
    matrices = xp.broadcast_to(A, stack + A.shape[-2:])
    blocks = xp.broadcast_to(columns, stack + columns.shape[-2:])
    for place in np.ndindex(stack):
        yield place, matrices[place], blocks[place]


def _solved(one: Solve, A: Array, B: Array, place: tuple[int, ...]) -> Any:
    try:
        return one(A, B)
    except SolveFailed as failure:
        reason = f"system {place} of the stack: {failure.reason}"
        found = failure.x, failure.backward_error, failure.attempts
        raise SolveFailed(reason, *found) from None


def _solve_together(
    A: Array, columns: Array, stack: tuple[int, ...], one: Solve, tol: float | None
) -> Array:
    n, k = columns.shape[-2:]
    places = _indices(A, stack), _indices(columns, stack)
    matrices, blocks = A.reshape(-1, n, n), columns.reshape(-1, n, k)
    X, passed = express_stack(matrices, blocks, places, tol, factorization_threads())
    for i in np.flatnonzero(passed == 0):  # perhaps few digits are right: that is looked into
        place = tuple(int(j) for j in np.unravel_index(i, stack))
        matrix = np.broadcast_to(A, (*stack, n, n))[place]
        X[i] = _solved(one, matrix, np.broadcast_to(columns, (*stack, n, k))[place], place)
    return X.reshape((*stack, n, k))


def _indices(given: Array, stack: tuple[int, ...]) -> NDArray[np.int64]:
    """For each system, the index of its matrix, or of its columns, among those given."""
    shape = given.shape[:-2]
    numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    return np.broadcast_to(numbers, stack).ravel()


def _stacked(answers: list[Solution], stack: tuple[int, ...], vectors: bool) -> StackedSolution:
    parts = np.empty(len(answers), dtype=object)
    parts[:] = answers
    found = [one.x for one in answers]
    X = array_module(found[0]).stack(found).reshape(stack + found[0].shape)
    return StackedSolution(X[..., 0] if vectors else X, parts.reshape(stack))


class StackedFactorization:
    """A `Factorization` of each matrix of a stack; `roundwise.factor` makes it.

    Parameters
    ----------
    A : (..., n, n) array
    one : callable
        Makes the factorization of one matrix.

    Examples
    --------
    >>> F = rw.factor(np.array([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [0.0, 1.0]]]))
    >>> F.solve(np.ones(2))
    array([[0.5 , 0.25],
           [0.  , 1.  ]])
    >>> F[0].solve(np.ones(2))
    array([0.5 , 0.25])
    """

    def __init__(self, A: Array, one: Callable[[Array], Any]) -> None:
        self.shape, stack = A.shape, A.shape[:-2]
        self.parts: Any = np.empty(stack, dtype=object)
        for place in np.ndindex(stack):
            self.parts[place] = one(A[place])

    def __getitem__(self, index: Any) -> Any:
        return self.parts[index]

    def __repr__(self) -> str:
        return f"StackedFactorization({' x '.join(map(str, self.shape))})"

    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        """``A^-1 b``, as `Factorization.solve`; b is broadcast as by `roundwise.solve`."""
        b = dense_array("b", b, real=False)
        stack, columns = checked_shapes(np.broadcast_to(0.0, self.shape), b)
        parts: Any = np.broadcast_to(self.parts, stack)
        blocks = np.broadcast_to(columns, stack + columns.shape[-2:])
        answers = [
            parts[place].solve(blocks[place], trans, full_output=True)
            if full_output
            else parts[place].solve(blocks[place], trans)
            for place in np.ndindex(stack)
        ]
        if full_output:
            return _stacked(answers, stack, b.ndim == 1)
        X = np.reshape(answers, stack + columns.shape[-2:])
        return X[..., 0] if b.ndim == 1 else X

    def refactor(self, A: Any) -> Self:
        """Go on with other matrices, a stack of the same shape."""
        A = dense_array("A", A, real=False)
        if A.shape != self.shape:
            raise ValueError(f"A has shape {A.shape}; pass a stack of shape {self.shape}")
        for place in np.ndindex(self.parts.shape):
            self.parts[place].refactor(A[place])
        return self
