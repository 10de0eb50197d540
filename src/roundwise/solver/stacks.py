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
from time import perf_counter
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.backends.arrays import array_module, on_host
from roundwise.backends.cuda import stacks as on_device
from roundwise.features.probe import cholesky_from
from roundwise.formats import FP64
from roundwise.machine.threads import factorization_threads, ieee_arithmetic
from roundwise.solver.express import (
    EXPRESS_TYPES,
    ExpressAnswer,
    Stack,
    StackAnswers,
    as_known_type,
    express_stack,
    is_compiled,
    is_held,
    known_of,
    solution_of,
    suspicious_ratio,
)
from roundwise.solver.frameworks import framework_of
from roundwise.solver.inputs import checked_shapes, dense_array, is_transposed
from roundwise.solver.places import Place
from roundwise.solver.prepare import Wanted
from roundwise.solver.solution import Solution, SolveFailed

Array = NDArray[Any]
Solve = Callable[[Array, Array], Any]


class AtOnce(NamedTuple):
    """What is asked of a stack whose small systems are solved together, and where."""

    wanted: Wanted
    place: Place | None = None  # the GPU that solves them; None for the processor

    def suits(self, A: Array, b: Array) -> bool:
        """Whether one call solves systems of A and b."""
        n, wanted = A.shape[-1], self.wanted
        if self.place is None:
            return wanted.takes(n) and n < cholesky_from() and is_compiled(n, A, b)
        # One kernel with FP64 factors, for all that it has room for.
        is_meant = wanted.takes(0) and not (wanted.is_low or wanted.forward)
        return is_meant and n <= int(on_device.largest("c" in (A.dtype.kind, b.dtype.kind)))


@dataclass(frozen=True, eq=False)
class StackedSolution:
    """The verified answers of a stack, and how each came about.

    ``solution[i]``, or ``solution[i, j]`` where A and b stack to two dimensions, is the `Solution`
    of one system.

    Parameters
    ----------
    x : array
        All answers, as without `full_output`.
    make : callable
        Makes the array of the `Solution` of each system, in the shape of the stack.

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
    make: Callable[[], NDArray[Any]] = field(repr=False)

    @cached_property
    def parts(self) -> NDArray[Any]:
        """One `Solution` for each system, in the shape of the stack; made when first asked for."""
        return self.make()

    def returned(self, back: Callable[[Any], Any]) -> StackedSolution:
        """The same with every x passed through `back`."""

        def made() -> Any:
            parts: Any = np.empty_like(self.parts)
            for place in np.ndindex(parts.shape):
                one: Any = self.parts[place]
                parts[place] = replace(one, x=back(one.x))
            return parts

        return StackedSolution(back(self.x), made)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All answers, so that NumPy's functions take them as an array."""
        return np.array(self.x, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_stories, (self.x, self.parts)

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


def _with_stories(x: Array, parts: NDArray[Any]) -> StackedSolution:
    return StackedSolution(x, lambda: parts)


def solve_stack(A: Array, b: Array, one: Solve, at_once: AtOnce, full_output: bool) -> Any:
    """The answers of all systems. `one` solves a single one."""
    stack, columns = checked_shapes(A, b)
    n, k = columns.shape[-2:]
    vectors = b.ndim == 1
    if A.size == n * n:  # one matrix for all: a solve for all columns
        spread = array_module(A).broadcast_to(columns, (*stack, n, k)).reshape(-1, n, k)
        answer = one(A.reshape(n, n), spread.transpose(1, 0, 2).reshape(n, -1))
        found = answer.x if full_output else answer
        X = found.reshape(n, -1, k).transpose(1, 0, 2)
        if full_output:
            return _stacked([replace(answer, x=x) for x in X], stack, vectors)
        X = X.reshape((*stack, n, k))
        return X[..., 0] if vectors else X
    if at_once.suits(A, columns):
        found = together(as_known_type(A), as_known_type(columns), stack, at_once)
        assert found is not None
        return found.answers(one, full_output, vectors)
    answers = [_solved(one, *system) for system in _systems(A, columns, stack)]
    if full_output:
        return _stacked(answers, stack, vectors)
    X = array_module(A).stack(answers).reshape((*stack, n, k))
    return X[..., 0] if vectors else X


def _systems(
    A: Array, columns: Array, stack: tuple[int, ...]
) -> Iterator[tuple[Array, Array, tuple[int, ...]]]:
    """The matrix, the right-hand sides and the place of each."""
    xp = array_module(A)
    matrices = xp.broadcast_to(A, stack + A.shape[-2:])
    blocks = xp.broadcast_to(columns, stack + columns.shape[-2:])
    for place in np.ndindex(stack):
        yield matrices[place], blocks[place], place


def _solved(one: Solve, A: Array, B: Array, place: tuple[int, ...]) -> Any:
    try:
        return one(A, B)
    except SolveFailed as failure:
        reason = f"system {place} of the stack: {failure.reason}"
        found = failure.x, failure.backward_error, failure.attempts
        raise SolveFailed(reason, *found) from None


class _Together:
    """A stack that one compiled call has solved, but for the systems that it refuses."""

    def __init__(
        self,
        given: Stack,
        stack: tuple[int, ...],
        at_once: AtOnce,
        found: StackAnswers,
        start: float,
    ) -> None:
        self._given, self._stack, self._at_once = given, stack, at_once
        self._found = found
        self._seconds = (perf_counter() - start) / given.systems

    def answers(self, one: Solve, full_output: bool, vectors: bool) -> Any:
        X, others = self._found.X, {}
        refused = (
            np.flatnonzero(np.isinf(on_host(self._found.errors))).tolist()
            if self._found.refused
            else []
        )
        for i in refused:
            # Perhaps few digits are right: that is looked into.
            place = tuple(int(j) for j in np.unravel_index(i, self._stack))
            others[i] = _solved(one, *self._system(i), place)
            X[i] = others[i].x if full_output else others[i]
        k = () if vectors else X.shape[2:]
        shaped = X.reshape(self._stack + X.shape[1:2] + k)
        if not full_output:
            return shaped
        return StackedSolution(shaped, lambda: self._told(others))

    def _system(self, i: int) -> tuple[Array, Array]:
        A, B, places, _ = self._given
        a, b = (
            which[i] if len(which) else i if len(given) > 1 else 0
            for given, which in zip((A, B), places, strict=True)
        )
        return A[a], B[b]

    def _told(self, others: dict[int, Solution]) -> NDArray[Any]:
        X, errors, _, tolerance = self._found
        errors, (wanted, place) = on_host(errors), self._at_once
        parts, tol = np.empty(len(X), dtype=object), wanted.tol
        for i, x in enumerate(X):
            if i in others:
                parts[i] = others[i]
                continue
            known = float(errors[i]), tolerance, math.nan, "lu", wanted.factor
            answer, system = ExpressAnswer(x, *known, forward=wanted.forward), self._system(i)
            again, where = None, "native"
            if place is not None:
                again, where = again_alone(*system, place, tol), place.backend.arithmetic
            A, b = system
            parts[i] = solution_of(answer, A, b, tol, self._seconds, again, wanted.reason, where)
        return parts.reshape(self._stack)


def together(
    A: Array,
    columns: Array,
    stack: tuple[int, ...],
    at_once: AtOnce,
    kept: _kernels.ExpressFactors | None = None,
) -> _Together | None:
    """All systems of a stack, that is not empty, by one call; None if types are not for it."""
    start, (n, k) = perf_counter(), columns.shape[-2:]
    matrices, blocks = A.reshape(-1, n, n), columns.reshape(-1, n, k)
    places = _indices(A, matrices, stack), _indices(columns, blocks, stack)
    given = Stack(matrices, blocks, places, math.prod(stack))
    if at_once.place is not None:
        found: StackAnswers | None = device_stack(at_once.place.backend, given, at_once.wanted.tol)
    else:
        found = express_stack(given, at_once.wanted, kept)
    return None if found is None else _Together(given, stack, at_once, found, start)


def answer_alone(
    A: Array, B: Array, place: Place, tol: float | None, told: bool = True
) -> ExpressAnswer | None:
    """One system by the kernel of stacks on a GPU, which is entered; None if it is refused.

    Unless it is to be `told`, the backward error is not read back, and NaN.
    """
    A, B = as_known_type(A), as_known_type(B)
    columns = B if B.ndim == 2 else B[:, None]
    alone = Stack(A[None], columns[None], (_NO_INDICES, _NO_INDICES), 1)
    X, errors, refused, tolerance = device_stack(place.backend, alone, tol)
    error = float(on_host(errors)[0]) if refused or told else math.nan
    if math.isinf(error):
        return None
    return ExpressAnswer(X[0] if B.ndim == 2 else X[0, :, 0], error, tolerance, math.nan)


def again_alone(
    A: Array, B: Array, place: Place, tol: float | None
) -> Callable[[], ExpressAnswer | None]:
    """What does the same later."""

    def solved() -> ExpressAnswer | None:
        with place.entered():
            return answer_alone(A, B, place, tol)

    return solved


def device_stack(backend: Any, given: Stack, tol: float | None) -> StackAnswers:
    """As `express_stack`, by one kernel on the GPU that has the stack; X and errors stay there."""
    A, B, places, systems = given
    dtype = A.dtype
    if B.dtype != dtype:
        dtype = np.result_type(dtype, B.dtype)
        A, B = A.astype(dtype, copy=False), B.astype(dtype, copy=False)
    known = known_of(A.shape[1:], dtype, B.shape[1:], dtype, tol, FP64.name)
    assert known is not None
    gate = known.gate
    asked = gate.tolerance, gate.growth, gate.exact_error, gate.suspicious, gate.least, gate.most
    first, second = (backend.array(which) if len(which) else None for which in places)
    solved = on_device.solve_stack(backend.device, A, B, systems, (first, second), asked)
    return StackAnswers(*solved, known.tolerance)


def stack_at_once(A: Array, b: Array, wanted: Wanted) -> _Together | None:
    """A stack of NumPy's arrays by one call; None if it is no stack of small systems.

    `small` systems only: what others take does not depend on their shape alone.
    """
    stack, n = A.shape[:-2], A.shape[-1]
    columns = b[:, None] if b.ndim == 1 else b
    if not (columns.ndim > 1 and columns.shape[-2] == n == A.shape[-2] < wanted.small):
        return None
    if not (columns.ndim == 2 or columns.shape[:-2] == stack) or b.size == 0 or A.size == 0:
        return None
    if not (is_held(A.dtype) and is_held(columns.dtype)):
        return None
    return together(as_known_type(A), as_known_type(columns), stack, AtOnce(wanted))


_NO_INDICES = np.empty(0, dtype=np.int64)


def _indices(given: Array, flat: Array, stack: tuple[int, ...]) -> NDArray[np.int64]:
    """For each system, the index of its matrix, or of its columns, among those given.

    None are needed where each system has its own, or all have the same.
    """
    shape = given.shape[:-2]
    if shape == stack or len(flat) == 1:
        return _NO_INDICES
    numbers = np.arange(len(flat), dtype=np.int64)
    return np.broadcast_to(numbers.reshape(shape), stack).ravel()


def _stacked(answers: list[Solution], stack: tuple[int, ...], vectors: bool) -> StackedSolution:
    parts = np.empty(len(answers), dtype=object)
    parts[:] = answers
    found = [one.x for one in answers]
    X = array_module(found[0]).stack(found).reshape(stack + found[0].shape)
    return StackedSolution(X[..., 0] if vectors else X, lambda: parts.reshape(stack))


class StackedFactorization:
    """A `Factorization` of each matrix of a stack; `roundwise.factor` makes it.

    Small matrices are factorized by one compiled call, and so are solves with all of them. On a GPU
    small ones are factorized again in the kernel of each solve.

    Parameters
    ----------
    A : (..., n, n) array
    one : callable
        Makes the factorization of one matrix.
    at_once : AtOnce
        Which matrices are small.

    Examples
    --------
    >>> F = rw.factor(np.array([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0], [0.0, 1.0]]]))
    >>> F.solve(np.ones(2))
    array([[0.5 , 0.25],
           [0.  , 1.  ]])
    >>> F[0].solve(np.ones(2))
    array([0.5 , 0.25])
    """

    def __init__(self, A: Array, one: Callable[[Array], Any], at_once: AtOnce) -> None:
        self._one, self._at_once = one, at_once
        self._take(A)

    def _take(self, A: Array) -> None:
        n = A.shape[-1]
        self.shape, self._A = A.shape, A.copy()
        self._parts: Any = None
        self._kept: dict[bool, _kernels.ExpressFactors] = {}  # of the transposes, too
        self._is_small = bool(A.size) and A.shape[-2] == n and self._at_once.suits(A, A)
        if not self._is_small:
            self._parts = self._made_one_by_one()
            return
        if self._at_once.place is not None:
            return  # whose kernel makes factors where it needs them
        for i in self._factors(transposed=False).refused:
            self._one(self._A.reshape(-1, n, n)[i])  # an error, if it is NaN

    @property
    def parts(self) -> Any:
        """The `Factorization` of each matrix."""
        if self._parts is None:
            self._parts = self._made_one_by_one()
        return self._parts

    def _made_one_by_one(self) -> Any:
        parts: Any = np.empty(self.shape[:-2], dtype=object)
        with ieee_arithmetic():
            for place in np.ndindex(parts.shape):
                parts[place] = self._one(self._A[place])
        return parts

    def _factors(self, transposed: bool) -> _kernels.ExpressFactors:
        if transposed not in self._kept:
            matrices = as_known_type(self._A).reshape(-1, *self.shape[-2:])
            if transposed:
                matrices = matrices.swapaxes(-1, -2)
            _, factor, forward, *_ = self._at_once.wanted
            ratio = suspicious_ratio(self.shape[-1], factor, forward)
            self._kept[transposed] = _kernels.express_factorize(
                matrices, factor, False, ratio, forward, factorization_threads()
            )
        return self._kept[transposed]

    def __getitem__(self, index: Any) -> Any:
        return self.parts[index]

    def __repr__(self) -> str:
        return f"StackedFactorization({' x '.join(map(str, self.shape))})"

    @overload
    def solve(self, b: Any, trans: Any = "N", *, full_output: Literal[True]) -> StackedSolution: ...
    @overload
    def solve(
        self, b: Array, trans: Any = "N", *, full_output: Literal[False] = False
    ) -> Array: ...
    @overload
    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any: ...
    def solve(self, b: Any, trans: Any = "N", *, full_output: bool = False) -> Any:
        """``A^-1 b``, as `Factorization.solve`; b is broadcast as by `roundwise.solve`."""
        if type(b) is not np.ndarray and (framework := framework_of(b)) is not None:
            return framework.solve_with(self, b, trans)
        place = self._at_once.place
        if place is None:
            with ieee_arithmetic():
                return self._solve(dense_array("b", b, real=False), trans, full_output)
        with place.entered(b):
            answer = self._solve(place.array("b", b), trans, full_output)

            def back(x: Any) -> Any:
                return place.returned(x, b)

            return answer.returned(back) if full_output else back(answer)

    def _solve(self, b: Array, trans: Any, full_output: bool) -> Any:
        stack, columns = checked_shapes(np.broadcast_to(0.0, self.shape), b)
        if self._is_small and b.size and as_known_type(b).dtype in EXPRESS_TYPES:
            return self._solved_together(columns, trans, stack, full_output, b.ndim == 1)
        xp = array_module(columns)
        parts: Any = np.broadcast_to(self.parts, stack)
        blocks = xp.broadcast_to(columns, stack + columns.shape[-2:])
        answers = [
            parts[place].solve(blocks[place], trans, full_output=True)
            if full_output
            else parts[place].solve(blocks[place], trans)
            for place in np.ndindex(stack)
        ]
        if full_output:
            return _stacked(answers, stack, b.ndim == 1)
        X = xp.stack(answers).reshape(stack + columns.shape[-2:])
        return X[..., 0] if b.ndim == 1 else X

    def _solved_together(
        self, columns: Array, trans: Any, stack: tuple[int, ...], full_output: bool, vectors: bool
    ) -> Any:
        transposed, A = is_transposed(trans), self._A
        # A* x = b says that A' conj(x) = conj(b).
        conjugate = transposed and trans in ("H", 2) and A.dtype.kind == "c"
        if transposed:
            A = A.swapaxes(-1, -2)
        if conjugate:
            columns = columns.conj()
        kept = self._factors(transposed) if self._at_once.place is None else None
        columns = as_known_type(columns)
        found = together(as_known_type(A), columns, stack, self._at_once, kept)
        assert found is not None

        def one(matrix: Array, block: Array) -> Any:
            return self._one(matrix).solve(block, full_output=full_output)

        answer = found.answers(one, full_output, vectors)
        if not conjugate:
            return answer
        if not full_output:
            return answer.conj()
        parts = answer.make
        return StackedSolution(answer.x.conj(), lambda: _conjugate(parts()))

    def refactor(self, A: Any) -> Self:
        """Go on with other matrices, a stack of the same shape."""
        there = self._at_once.place
        A = dense_array("A", A, real=False) if there is None else there.array("A", A)
        if A.shape != self.shape:
            raise ValueError(f"A has shape {A.shape}; pass a stack of shape {self.shape}")
        if self._is_small:
            with ieee_arithmetic():
                self._take(A)
            return self
        for place in np.ndindex(self.parts.shape):
            self.parts[place].refactor(A[place])
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_parts, (self.shape, self.parts)


def _with_parts(shape: tuple[int, ...], parts: Any) -> StackedFactorization:
    """What was pickled: the factorization of each matrix."""
    F = StackedFactorization.__new__(StackedFactorization)
    F.shape, F._parts, F._kept, F._is_small = shape, parts, {}, False
    F._at_once = AtOnce(Wanted())
    return F


def _conjugate(parts: Any) -> Any:
    """The same answers with conjugate x."""
    for place in np.ndindex(parts.shape):
        parts[place] = replace(parts[place], x=parts[place].x.conj())
    return parts
