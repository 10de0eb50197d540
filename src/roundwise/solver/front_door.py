"""`solve` and `factor`: the front door, in four steps.

system = prepare(A, ...)          # checked, scaled, where it is
plan = decide(system, policy)     # the ladder of actions, and why
answer = F.solve(b)               # climb: run, judge by the gate, take the next
returned(answer, A, b)            # the kind, type, shape and device of b
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms import Outcome
from roundwise.backends.arrays import is_sparse
from roundwise.backends.engines.orderings import Orders
from roundwise.machine.threads import ieee_arithmetic, spinning_threads_aside
from roundwise.solver.decide import decide, starts_low
from roundwise.solver.express import ExpressAnswer, Refused, attempt, express_action, solution_of
from roundwise.solver.express_device import express_on_device
from roundwise.solver.express_factors import dense_factors
from roundwise.solver.express_sparse import SparseSequence, attempt_sparse, repeated, sparse_factors
from roundwise.solver.factorization import Decided, Factorization, SmallFactors, solved_once, with_x
from roundwise.solver.frameworks import framework_of
from roundwise.solver.inputs import dense_array, empty_answer
from roundwise.solver.iterating import Step, Wishes, solve_iteratively, to_residual
from roundwise.solver.nullspaces import solve_singular
from roundwise.solver.operators import is_operator
from roundwise.solver.patterns import KnownPatterns
from roundwise.solver.places import (
    Place,
    like_given,
    on_host,
    place_of,
    returned,
    sparse_gpu,
    sparse_place,
)
from roundwise.solver.policy_argument import DEFAULT
from roundwise.solver.prepare import Accuracy, Asked, asked_of, backend_for, prepare
from roundwise.solver.signatures import FactorOptions, Matrix, SolveOptions, Stack
from roundwise.solver.solution import Solution
from roundwise.solver.stacks import (
    AtOnce,
    Solve,
    StackedFactorization,
    StackedSolution,
    again_alone,
    answer_alone,
    solve_stack,
    stack_at_once,
)
from roundwise.solver.structures import Structure
from roundwise.solver.system import System

Array = NDArray[Any]

ALONE_UP_TO = 256
"""The most unknowns of a single system that a GPU solves by the kernel of stacks: a price. It takes
0.2 ms for n = 128, 0.7 for 256 and 3.5 for 500 on an H200, and what follows takes 2.2 or more
(`benchmarks/bench_gpu_calls.py --only stacks`)."""


@overload
def solve(
    A: Matrix, b: Any, *, full_output: Literal[True], **options: Unpack[SolveOptions]
) -> Solution: ...
@overload
def solve(
    A: Stack, b: Any, *, full_output: Literal[True], **options: Unpack[SolveOptions]
) -> StackedSolution: ...
@overload
def solve(
    A: Any, b: Any, *, full_output: Literal[True], **options: Unpack[SolveOptions]
) -> Solution: ...
@overload
def solve(
    A: Any, b: Array, *, full_output: Literal[False] = False, **options: Unpack[SolveOptions]
) -> Array: ...
@overload
def solve(A: Any, b: Any, *, full_output: bool = False, **options: Unpack[SolveOptions]) -> Any: ...
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
    nullspace: Any = None,
    M: Any = None,
    x0: Any = None,
    callback: Callable[[Step], Any] | None = None,
    progress: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    memory: str | float | None = None,
) -> Any:
    """Solve ``A x = b`` in as little precision as it takes, and verify the answer.

    A is factorized in a format that is likely to suffice, x is refined in float64, and x is
    returned only if its backward error is at most `tol`. Where it is not, higher formats and
    other methods follow, up to LU and QR in FP64.

    Parameters
    ----------
    A : (n, n) array_like or sparse, or stacked (..., n, n)
        Dense (any memory order) or sparse (any format), real or complex. It is not modified. CuPy
        arrays and torch tensors on a GPU are solved there, sparse ones, too. A `LinearOperator`, or
        a function of a vector, is solved by a Krylov method, and verified by its own products.
    b : (n,) or (n, k) array_like or sparse, or stacked (..., n, k)
        One right-hand side, or k of them as columns. Stacks are broadcast as NumPy 2 does it: a
        one-dimensional b is one vector for all systems.
    tol : float, optional
        The backward error to accept: ``||b - A x|| <= tol (||A|| ||x|| + ||b||)`` in the max norm,
        for each right-hand side. The default is ``sqrt(n) u``, which is about what LAPACK
        delivers; u is float64's unit roundoff, or float32's if A and b are float32.
    policy : str, path, list, Tuner or DeployedPolicy
        What chooses the method and the formats to start with: ``"default"``, a format's name, an
        action's text (``"lu:fp32-fp64-fp64-fp64"``), a list of actions to try in turn, a fitted
        `Tuner`, or the ``.json`` file that it saved. A bad choice costs time, never digits: every
        answer passes the same gate.
    full_output : bool
        Return a `Solution` instead of x: the same x with every attempt and the times. Its error
        bound and condition number are computed when they are read, from A as it is then:
        `SystemChanged` is raised if A has been changed since.
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
    device : {None, "cpu", "cuda", "cuda:1", ..., "auto"}
        ``"cuda"``: copy A and b to that GPU, solve there, and copy x back; a sparse A is factorized
        there, by cuDSS, and x verified on the processor. ``"auto"``: a sparse A is factorized
        wherever that is expected to be faster. By default a system is solved where it is.
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
    nullspace : {"constants"} or (n,) or (n, d) array_like, optional
        The null space of a singular A: constants (on each part of a graph that is not connected),
        or null vectors as columns. If b is in A's range, x is the shortest solution.
    M : LinearOperator, callable, matrix or Factorization, optional
        The caller's preconditioner, about the inverse of A, as in SciPy; a `Factorization` solves
        with its own matrix. A Krylov method is used then, and if `x0`, `callback` or `progress` is
        given (docs/iterative.md). Where it does not get there, A is solved as without them.
    x0 : array_like, optional
        Where to start.
    callback : callable, optional
        Called with a `Step` after each iteration; it ends the iteration by returning True.
    progress : bool
        Show a bar on the terminal, or in a notebook, while a Krylov method iterates.
    rtol, atol : float, optional
        Accept x only if, for each right-hand side, ``||b - A x||_2 <= max(rtol ||b||_2, atol)``,
        as SciPy's iterative solvers do; `tol` is `rtol` then, if it is not given.
    memory : str or number, optional
        What a solve may take beside A: bytes, or ``"4GB"``, ``"512MiB"``. Methods that are expected
        to take more are not chosen. By default it is what is free, for solves that take much. On a
        GPU, its own memory counts.

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
        For input that cannot be solved with: shapes, NaN and infinity, operands on two devices.
    InsufficientMemory
        A `MemoryError`, before the work: no method fits into `memory`. It has all forecasts.
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
    is_plain = type(b) is np.ndarray and (type(A) is type(b) or sparse.issparse(A))
    no_wish = nullspace is M is x0 is None and rtol is atol is None
    no_wish = no_wish and callback is None and not progress
    framework = None if is_plain else framework_of(A, b)
    if framework is not None and no_wish and memory is None:
        return framework.solve_followed(
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
    asked = asked_of(policy, tol, assume_a, accuracy, lower, transposed, memory)
    if no_wish and is_plain and device is None:
        x = _on_host(asked, A, b, full_output)
    elif no_wish and (is_plain or not is_operator(A)):
        x = solve_system(asked, A, b, full_output, device)
    else:
        wishes = Wishes(M, x0, callback, bool(progress), rtol, atol)
        x = _as_wished(asked, A, b, wishes, nullspace, full_output, device)
    return _in_memory_of(b, x, A) if overwrite_b else x


def _as_wished(
    asked: Asked,
    A: Any,
    b: Any,
    wishes: Wishes,
    nullspace: Any,
    full_output: bool,
    device: str | None,
) -> Any:
    """`solve` of an operator, of a singular A, or with a say in the iteration."""
    options = asked.options

    def solved(A: Any, b: Any, tol: float | None, full_output: bool) -> Any:
        given = Asked(asked.asker, replace(options, tol=tol, structure=None, transposed=False))
        return solve_system(given, A, b, full_output, device)

    def factored(A: Any, tol: float) -> Any:
        given = Asked(asked.asker, replace(options, tol=tol, structure=None, transposed=False))
        return factor_system(given, A, _columns_of(np.asarray(b)), device)

    if not is_operator(A):
        A = options.meant(A)
        if nullspace is not None:
            if wishes.iterate:
                raise ValueError("nullspace= does not go with M=, x0=, callback= or progress=")
            tol = wishes.loosened(options.tol)
            answer = solve_singular(A, b, nullspace, tol, factored)
            return wishes.checked(A, b, answer, full_output)
        if not wishes.iterate:
            return to_residual(solved, A, b, wishes, options.tol, full_output)
    elif nullspace is not None or options.transposed:
        raise TypeError("A is an operator; pass a matrix for nullspace= and transposed=True")
    direct = None
    if not is_operator(A):
        direct = partial(to_residual, solved, A, b, wishes, options.tol, full_output)
    tol, structure = options.tol, options.structure
    return solve_iteratively(A, b, wishes, tol, structure, direct, full_output)


def solve_system(
    asked: Asked,
    A: Any,
    b: Any,
    full_output: bool = False,
    device: str | None = None,
    patterns: KnownPatterns | None = None,
) -> Any:
    """`solve` with checked options; `patterns` are those that a `Solver` has analysed."""
    if device is None and type(b) is np.ndarray and (type(A) is type(b) or sparse.issparse(A)):
        return _on_host(asked, A, b, full_output, patterns)
    if (sparse_on := sparse_place(A, device)) != "cpu":
        there = Asked(asked.asker, replace(asked.options, sparse_on=sparse_on))
        with sparse_gpu(A, device) if sparse_on == "cuda" else nullcontext():
            answer = solve_system(there, on_host(A), on_host(b), full_output, None, patterns)
            return with_x(answer, lambda x: like_given(x, b))
    place = place_of(A, b, device)
    if place is None:
        with ieee_arithmetic():
            arrays = _arrays(A, b)
        answer = _on_host(asked, *arrays, full_output, patterns)
        return with_x(answer, lambda x: returned(x, A, b))
    with place.entered(A, b):
        meant, right = asked.options.meant(place.array("A", A)), place.array("b", b)
        answer = _on_device(asked.rest, meant, right, full_output, place)
        return with_x(answer, lambda x: place.returned(x, b))


def _on_host(
    asked: Asked, A: Any, b: Any, full_output: bool, patterns: KnownPatterns | None = None
) -> Any:
    """One look-up and one compiled call; the four steps where that is not for A, or refuses."""
    start, orders, found = perf_counter(), None, None
    is_dense, options = type(A) is np.ndarray, asked.options
    if not is_dense and A.shape[0] == 0:
        A, is_dense = A.toarray(), True
    if not is_dense:
        wanted = asked.sparse
        if wanted is not None:
            known = () if patterns is None else patterns.factors
            found = attempt_sparse(A, b, wanted, patterns is None, known)
    elif A.ndim > 1:
        if options.structure is not None and not asked.takes(A):
            with ieee_arithmetic():
                A, asked = options.meant(A), asked.rest
            options = asked.options
        given, wanted = A.swapaxes(-1, -2) if options.transposed else A, asked.dense
        if A.ndim == 2:
            found = attempt(given, b, wanted)
        elif (stacked := stack_at_once(given, b, wanted)) is not None:
            one = partial(_on_host, asked.rest, full_output=full_output)
            return stacked.answers(one, full_output, b.ndim == 1)
    if isinstance(found, ExpressAnswer):
        if patterns is not None:
            patterns.keep(found.factors)
        if not full_output:
            return found.x
        assert wanted is not None
        seconds, meant = perf_counter() - start, options.meant(A)
        again = None if is_dense else repeated(found, A, b, wanted)
        return solution_of(found, meant, b, wanted.tol, seconds, again, wanted.reason)
    refused: tuple[Outcome, ...] = ()
    if isinstance(found, Refused):
        assert wanted is not None
        refused = (found.outcome(wanted, perf_counter() - start),)
    elif not options.transposed:
        orders = found
    # The first passes over a dense A use all cores, not only its factorization.
    with ieee_arithmetic(), spinning_threads_aside(_order_of(A)):
        A, asked = options.meant(A), asked.rest
        if is_dense and (A.ndim != 2 or b.ndim > 2 or 0 in (*A.shape, *b.shape)):
            one = partial(_on_host, asked, full_output=full_output)
            return _each(*_arrays(A, b), one, AtOnce(asked.dense), full_output)
        round_too = starts_low(asked.asker) and _order_of(A) >= asked.asker.express_below
        backend = backend_for(options.sparse_on)
        start = perf_counter()
        system = prepare(A, _columns_of(b), round_too=round_too, backend=backend)
        return _climbed(asked, system, b, full_output, start, patterns, refused, orders)


def _on_device(asked: Asked, A: Any, b: Any, full_output: bool, place: Place) -> Any:
    """The same on a GPU, which has A and b."""
    start, options, looked = perf_counter(), asked.options, None
    at_once = AtOnce(asked.dense, place)
    if A.ndim != 2 or b.ndim > 2:
        one = partial(_on_device, asked, full_output=full_output, place=place)
        return _each(A, b, one, at_once, full_output)
    if len(A) <= ALONE_UP_TO:
        fits = A.shape == (len(A), len(A)) and b.shape[:1] == (len(A),) and A.size and b.size
        if fits and at_once.suits(A, b):
            alone = answer_alone(A, b, place, options.tol, full_output)
            if alone is not None and not full_output:
                return alone.x
            if alone is not None:
                again, reason = again_alone(A, b, place, options.tol), asked.dense.reason
                seconds, where = perf_counter() - start, place.backend.arithmetic
                return solution_of(alone, A, b, options.tol, seconds, again, reason, where)
    if asked.asker is DEFAULT and not full_output:
        x, looked = express_on_device(A, b, options, place)
        if x is not None:
            return x
    start = perf_counter()
    system = prepare(A, _columns_of(b), place)
    system = system if looked is None else replace(system, looked=looked)
    return _climbed(asked, system, b, full_output, start)


def _climbed(
    asked: Asked,
    system: System,
    b: Any,
    full_output: bool,
    start: float,
    patterns: KnownPatterns | None = None,
    refused: tuple[Outcome, ...] = (),
    orders: Orders | None = None,
) -> Any:
    """Decide, climb, give back; x is of the kind of b there.

    `refused` has what the express call has tried, `orders` are those that it has found.
    """
    known = nullcontext((system, None)) if patterns is None else patterns.borrowed(system)
    with known as (system, analyses):
        given = system if orders is None else replace(system, orders=orders)
        plan = decide(given, asked.asker, asked.options)
        del orders, given  # F drops those of the plan when they have served
        seconds = perf_counter() - start
        F = Factorization(system, plan, asked.options, seconds, analyses, once=True)
        del plan
        return solved_once(F, b, full_output, refused)


def _arrays(A: Any, b: Any) -> tuple[Any, Any]:
    """A and b as NumPy's arrays; what is sparse as it is."""
    return tuple(  # type: ignore[return-value]
        x if is_sparse(x) else dense_array(name, x, real=False) for name, x in (("A", A), ("b", b))
    )


def _each(A: Any, b: Any, one: Solve, at_once: AtOnce, full_output: bool) -> Any:
    """Stacks, and what is empty; `one` solves a single system."""
    if A.size and b.size:
        return solve_stack(A, b, one, at_once, full_output)
    if full_output or at_once.place is not None:
        raise ValueError(
            "A or b is empty: there is no solve to describe; leave out full_output, and device="
        )
    return empty_answer(A, b)


@overload
def factor(A: Matrix, **options: Unpack[FactorOptions]) -> Factorization: ...
@overload
def factor(A: Stack, **options: Unpack[FactorOptions]) -> StackedFactorization: ...
@overload
def factor(A: Any, **options: Unpack[FactorOptions]) -> Factorization: ...
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
    memory: str | float | None = None,
) -> Factorization | StackedFactorization:
    """Factorize A once, to solve with many right-hand sides; see `solve` for the arguments.

    A is copied, so you may change it afterwards. The factors are made at the first solve, because
    only a solve shows which format suffices. Stacked matrices, (..., n, n), make a
    `StackedFactorization`.

    Parameters
    ----------
    A, tol, policy, assume_a, accuracy, device, lower, memory
        As for `solve`; `memory` is that beside A and its copy.
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
    is_plain = type(A) is np.ndarray or sparse.issparse(A)
    if not is_plain and memory is None and (framework := framework_of(A)) is not None:
        return framework.factor_followed(  # type: ignore[no-any-return]
            A,
            tol=tol,
            policy=policy,
            assume_a=assume_a,
            columns=columns,
            accuracy=accuracy,
            device=device,
            lower=lower,
        )
    asked = asked_of(policy, tol, assume_a, accuracy, lower, False, memory)
    return factor_system(asked, A, columns, device)


def factor_system(
    asked: Asked, A: Any, columns: int = 1, device: str | None = None, copy: bool = True
) -> Factorization | StackedFactorization:
    """`factor` with checked options; without `copy`, a dense A is not to be changed later."""
    if not isinstance(columns, int | np.integer) or columns < 1:
        raise ValueError(f"columns = {columns!r}; pass how many to expect, at least 1")
    if (sparse_on := sparse_place(A, device)) != "cpu":
        asked = Asked(asked.asker, replace(asked.options, sparse_on=sparse_on))
        with sparse_gpu(A, device) if sparse_on == "cuda" else nullcontext():
            return factor_system(asked, on_host(A), columns, copy=copy)
    place = place_of(A, None, device)
    with ieee_arithmetic() if place is None else place.entered(A):
        A, asked = asked.options.meant(A if place is None else place.array("A", A)), asked.rest
        one = partial(_factored, asked, columns=int(columns), place=place, copy=copy)
        if is_sparse(A) or np.ndim(A) <= 2:
            return one(A)
        stack = A if place is not None else dense_array("A", A, real=False)
        return StackedFactorization(stack, one, AtOnce(asked.dense, place))


def _factored(
    asked: Asked, A: Any, columns: int, place: Place | None, copy: bool = True
) -> Factorization:
    options = asked.options

    def decided(matrix: Any) -> Decided:
        start = perf_counter()
        backend = backend_for(options.sparse_on)
        system = prepare(matrix, columns, place, copy=copy, backend=backend)
        return system, decide(system, asked.asker, options), perf_counter() - start

    made: Any = None
    wanted = asked.sparse if is_sparse(A) else asked.dense
    if place is None and wanted is not None:
        factorize: Any = partial(dense_factors, wanted=wanted)
        if is_sparse(A):
            made = sparse_factors(A, wanted, columns)
            factorize = None if made is None else SparseSequence(made).next
        else:
            array = dense_array("A", A, real=False)
            is_copy = type(A) is np.ndarray and not np.may_share_memory(array, A)
            made = dense_factors(array, wanted, is_copy or not copy)
            del array  # A in another byte order is converted again, into the copy that is kept
        if made is not None:
            action = express_action(made.factor, wanted.forward, made.method)
            small = SmallFactors(factorize, decided, action, wanted.reason)
            return Factorization._of_small(made, small, options)
    system, plan, seconds = decided(A)
    return Factorization(system, plan, options, seconds)


def _order_of(A: Any) -> int:
    """Of a dense matrix; 0 of others."""
    return 0 if is_sparse(A) or A.ndim != 2 else len(A)


def _columns_of(b: Any) -> int:
    return max(1, b.shape[1]) if b.ndim == 2 else 1


def _in_memory_of(b: Any, x: Any, A: Any) -> Any:
    """x in the memory of b, where it fits, and where that is not A's."""
    same = type(b) is type(x) is np.ndarray and b.dtype == x.dtype and b.shape == x.shape
    if not (same and b.flags.f_contiguous and b.flags.writeable):
        return x
    if np.may_share_memory(b, A.data if is_sparse(A) else np.asarray(A)):
        return x
    b[...] = x
    return b
