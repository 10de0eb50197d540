"""`solve` and `factor`: the front door, in four steps.

system = prepare(A, ...)          # checked, scaled, where it is
plan = decide(system, policy)     # the ladder of actions, and why
answer = F.solve(b)               # climb: run, judge by the gate, take the next
returned(answer, A, b)            # the kind, type, shape and device of b
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from roundwise.algorithms import Outcome
from roundwise.backends.arrays import is_sparse
from roundwise.backends.cuda import stacks as on_device
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native.structured import Found
from roundwise.features.probe import cholesky_from
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.machine.threads import ieee_arithmetic, spinning_threads_aside
from roundwise.policies.neighbours import ALWAYS_SMALL
from roundwise.solver.decide import decide, starts_low
from roundwise.solver.express import (
    AT_ONCE,
    ExpressAnswer,
    Refused,
    attempt,
    express_action,
    solution_of,
)
from roundwise.solver.express_device import express_on_device
from roundwise.solver.express_factors import DenseFactors, ThreadedFactors, dense_factors
from roundwise.solver.express_sparse import (
    SparseSequence,
    Wanted,
    express_sparse,
    sparse_factors,
    sparse_solution_of,
    tiny_sparse,
)
from roundwise.solver.express_structured import UNKNOWN, told
from roundwise.solver.factorization import Decided, Factorization, SmallFactors, solved_once, with_x
from roundwise.solver.frameworks import framework_of
from roundwise.solver.inputs import dense_array, empty_answer
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
from roundwise.solver.policy_argument import DEFAULT, Asker, Start, at_least, parse_policy
from roundwise.solver.prepare import Accuracy, Options, backend_for, checked_tolerance, prepare
from roundwise.solver.stacks import (
    AtOnce,
    StackedFactorization,
    again_alone,
    answer_alone,
    solve_stack,
    stack_at_once,
)
from roundwise.solver.structures import Structure

Array = NDArray[Any]

ALONE_UP_TO = 256
"""The most unknowns of a single system that a GPU solves by the kernel of stacks: a price. It takes
0.2 ms for n = 128, 0.7 for 256 and 3.5 for 500 on an H200, and what follows takes 2.2 or more
(`benchmarks/bench_gpu_calls.py --only stacks`)."""


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
        arrays and torch tensors on a GPU are solved there, sparse ones, too.
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
    refused: tuple[Outcome, ...] | None = None
    orders: Orders | None = None
    found: Any
    if (
        type(A) is type(b) is np.ndarray
        and type(policy) is str
        and policy == "default"
        and accuracy in ("backward", "forward")
        and device is None
        and A.ndim > 1
        and (assume_a is None or _needs_no_look(assume_a, A, accuracy))
    ):
        # One look-up, one compiled call: what n < 50 may take is a few microseconds.
        start, tol, forward = perf_counter(), checked_tolerance(tol), accuracy == "forward"
        given = A.swapaxes(-1, -2) if transposed else A
        if A.ndim > 2:
            stacked = stack_at_once(given, b, tol, forward)
            if stacked is not None:
                options = Options(tol, accuracy=accuracy)
                x = stacked.answers(
                    lambda A, b: solve_system(DEFAULT, A, b, options, full_output),
                    full_output,
                    b.ndim == 1,
                )
                return _in_memory_of(b, x, A) if overwrite_b else x
        zeros = UNKNOWN if assume_a is None else told(assume_a, transposed)
        found = attempt(given, b, tol, forward=forward, structure=zeros)
        if isinstance(found, ExpressAnswer):
            seconds = perf_counter() - start
            x = found.x
            if full_output:
                said = Options(tol, assume_a, accuracy, lower, transposed)
                x = solution_of(found, said.meant(A), b, tol, seconds)
            return _in_memory_of(b, x, A) if overwrite_b else x
        refused = _refused(found, FP64.name, forward, start)
    elif (
        type(b) is np.ndarray
        and type(policy) is str
        and policy == "default"
        and accuracy in ("backward", "forward")
        and assume_a is device is None
        and sparse.issparse(A)
    ):
        start, tol = perf_counter(), checked_tolerance(tol)
        wanted = Wanted(tol, FP64.name, accuracy == "forward", bool(transposed))
        found, factors, most = tiny_sparse(A, b, wanted), None, 0
        if found is None:
            most = DEFAULT.express_below
            with ieee_arithmetic():
                found, factors = express_sparse(A, b, wanted, most)
        if isinstance(found, ExpressAnswer):
            x = found.x
            if full_output:
                seconds = perf_counter() - start
                x = sparse_solution_of(found, factors, A, b, wanted, most, seconds)
            return _in_memory_of(b, x, A) if overwrite_b else x
        refused = _refused(found, FP64.name, wanted.forward, start)
        orders = found if isinstance(found, Orders) else None
    elif (framework := framework_of(A, b)) is not None:
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
    options = Options.checked(tol, assume_a, accuracy, lower, transposed)
    asker = parse_policy(policy)
    x = solve_system(asker, A, b, options, full_output, device, None, refused, orders)
    return _in_memory_of(b, x, A) if overwrite_b else x


def _needs_no_look(assume_a: Any, A: Array, accuracy: str) -> bool:
    """Whether one call solves with what `assume_a` tells: of zeros, or nothing of a small A."""
    if assume_a in ("general", "gen"):
        return len(A) < ALWAYS_SMALL
    return accuracy == "backward" and A.ndim == 2 and told(assume_a, False) is not None


def solve_system(
    asker: Asker,
    A: Any,
    b: Any,
    options: Options,
    full_output: bool = False,
    device: str | None = None,
    patterns: KnownPatterns | None = None,
    refused: tuple[Outcome, ...] | None = None,
    orders: Orders | None = None,
) -> Any:
    """`solve` with checked options; `patterns` are those that a `Solver` has analysed.

    `refused` has what the express calls were tried for with A and b as they are; None if none was.
    `orders` are those that they have found for a sparse A.
    """
    place = None
    if device is not None or not (type(b) is np.ndarray and (type(A) is type(b) or is_sparse(A))):
        if (sparse_on := sparse_place(A, device)) != "cpu":
            options = replace(options, sparse_on=sparse_on)
            with sparse_gpu(A, device) if sparse_on == "cuda" else nullcontext():
                there = on_host(A), on_host(b)
                answer = solve_system(asker, *there, options, full_output, None, patterns)
                return with_x(answer, lambda x: like_given(x, b))
        place = place_of(A, b, device)
    if place is None:
        # Its first passes over a dense A use all cores, not only its factorization.
        with ieee_arithmetic(), spinning_threads_aside(_order_of(A)):
            meant, rest = A, options
            if not (options.transposed and options.structure is None and is_sparse(A)):
                meant, rest = options.meant(A), options.rest  # the express call reads a transpose
            answer = _solved(asker, meant, b, rest, full_output, None, patterns, refused, orders)
        return answer if type(b) is np.ndarray else with_x(answer, lambda x: returned(x, A, b))
    with place.entered(A, b):
        meant, right = options.meant(place.array("A", A)), place.array("b", b)
        answer = _solved(asker, meant, right, options.rest, full_output, place, None)
        return with_x(answer, lambda x: place.returned(x, b))


def _solved(
    asker: Asker,
    A: Any,
    b: Any,
    options: Options,
    full_output: bool,
    place: Place | None,
    patterns: KnownPatterns | None,
    refused: tuple[Outcome, ...] | None = None,
    orders: Orders | None = None,
) -> Any:
    """The four steps, for one system or for each of a stack; x is of the kind of b there."""
    given, start = A, perf_counter()
    if place is None:
        A, b = _arrays(A, b)
    is_empty = place is None and not is_sparse(A) and 0 in (*A.shape, *b.shape)
    if is_empty or (not is_sparse(A) and (A.ndim != 2 or b.ndim > 2)):
        return _solved_each(asker, A, b, options, full_output, place)
    if place is not None and len(A) <= ALONE_UP_TO:
        tol, start = options.tol, perf_counter()
        fits = A.shape == (len(A), len(A)) and b.shape[:1] == (len(A),) and A.size and b.size
        if fits and _at_once(asker, options, place, len(A)).suits(A, b):
            alone = answer_alone(A, b, place, tol, full_output)
            if alone is not None and not full_output:
                return alone.x
            if alone is not None:
                again, reason = again_alone(A, b, place, tol), reason_of(asker)
                seconds, where = perf_counter() - start, place.backend.arithmetic
                return solution_of(alone, A, b, tol, seconds, again, reason, where)
    if place is None and is_sparse(A):
        if refused is None and (wanted := wanted_of(asker, options)) is not None:
            bound = math.inf if wanted.is_low else asker.express_below
            before = () if patterns is None else patterns.factors
            found: Any = tiny_sparse(A, b, wanted)
            factors = None
            if found is None:
                found, factors = express_sparse(A, b, wanted, bound, patterns is None, before)
            if patterns is not None:
                patterns.keep(factors)
            if isinstance(found, ExpressAnswer):
                if not full_output:
                    return found.x
                seconds, reason = perf_counter() - start, reason_of(asker, wanted.factor)
                return sparse_solution_of(found, factors, A, b, wanted, bound, seconds, reason)
            refused = refused or _refused(found, wanted.factor, wanted.forward, start)
            orders = None if isinstance(found, Refused) else found
        if options.transposed:
            given = A = options.meant(A)
            options, orders = options.rest, None
    elif place is None and refused is None:
        tol, bound = options.tol, _express_below(asker, options)
        factor, forward = express_format(asker), options.forward
        found = attempt(A, b, tol, bound, factor, forward, _zeros(asker, options))
        if isinstance(found, ExpressAnswer):
            if not full_output:
                return found.x
            seconds, reason = perf_counter() - start, reason_of(asker)
            return solution_of(found, A, b, tol, seconds, None, reason)
        refused = _refused(found, factor, forward, start)
    looked: dict[str, float] | None = None
    if place is not None and asker is DEFAULT and not full_output:
        x, looked = express_on_device(A, b, options, place)
        if x is not None:
            return x
    start = perf_counter()
    round_too = starts_low(asker) and _order_of(A) >= asker.express_below
    if isinstance(given, np.ndarray):
        A = given  # in the other byte order, say: it is converted again, into a copy of our own
    backend = backend_for(options.sparse_on)
    system = prepare(A, _columns_of(b), place, round_too=round_too, backend=backend)
    system = system if looked is None else replace(system, looked=looked)
    known = nullcontext((system, None)) if patterns is None else patterns.borrowed(system)
    with known as (system, analyses):
        plan = decide(system if orders is None else replace(system, orders=orders), asker, options)
        del orders  # F drops those of the plan when they have served
        seconds = perf_counter() - start
        F = Factorization(system, plan, options, seconds, analyses, once=True)
        del plan
        return solved_once(F, b, full_output, refused or ())


def _refused(found: Any, factor: str, forward: bool, start: float) -> tuple[Outcome, ...]:
    """The attempts of an express call that gave no answer: one, or none if it was not for it."""
    if not isinstance(found, Refused):
        return ()
    return (found.outcome(factor, forward, perf_counter() - start),)


def _arrays(A: Any, b: Any) -> tuple[Any, Any]:
    """A and b as NumPy's arrays, what is sparse as it is; a sparse A without rows as an array."""
    if is_sparse(A) and A.shape[0] == 0:
        A = A.toarray()
    if is_sparse(A):
        return A, b
    A = dense_array("A", A, real=False)
    return A, b if is_sparse(b) else dense_array("b", b, real=False)


def _solved_each(
    asker: Asker, A: Any, b: Any, options: Options, full_output: bool, place: Place | None
) -> Any:
    """Stacks, and what is empty."""
    if A.size == 0 or b.size == 0:
        if full_output or place is not None:
            raise ValueError(
                "A or b is empty: there is no solve to describe; leave out full_output, and device="
            )
        return empty_answer(A, b)

    def one(matrix: Array, columns: Array) -> Any:
        return _solved(asker, matrix, columns, options, full_output, place, None)

    return solve_stack(
        A, b, one, _at_once(asker, options, place, A.shape[-1] if A.ndim else 0), full_output
    )


def _at_once(asker: Asker, options: Options, place: Place | None, n: int) -> AtOnce:
    """Which systems of a stack are solved together; of n unknowns each."""
    if place is not None and asker is DEFAULT and options.accuracy == "backward":
        every = on_device.largest(False) + 1
        return AtOnce(options.tol, every, FP64.name, False, AT_ONCE, place)
    bound = ALWAYS_SMALL if asker is DEFAULT else 0
    if place is not None and options.accuracy != "backward":
        bound = 0
    elif place is not None:  # one kernel with FP64 factors, for all that it has room for
        is_meant = express_format(asker) == FP64.name and _express_below(asker, options) > 0
        bound = on_device.largest(False) + 1 if is_meant else 0
    elif n >= bound:
        bound = min(_express_below(asker, options), cholesky_from())
    factor, reason = express_format(asker), reason_of(asker)
    return AtOnce(options.tol, bound, factor, options.forward, reason, place)


def _express_below(asker: Asker, options: Options) -> int:
    """Systems with fewer unknowns are solved by the express call, that is by LU."""
    if isinstance(asker, Start) and options.definite:
        return 0  # the format is meant for Cholesky
    return options.express_below(asker.express_below)


def _zeros(asker: Asker, options: Options) -> Found | None:
    """What the express call is told of A's zeros: to look, or to leave them to the policy."""
    looks = asker.looks_for_structure and options.definite is None
    return UNKNOWN if looks else None


def express_format(asker: Asker) -> str:
    """The format of an express call's factors."""
    return asker.express_format if isinstance(asker, Start) else FP64.name


def wanted_of(asker: Asker, options: Options) -> Wanted | None:
    """What an express call is to do for a sparse A; None if the policy decides, or its action does.

    Formats that sparse factors do not have are raised.
    """
    factor = FP64
    if options.sparse_on != "cpu":
        return None
    if isinstance(asker, Start):
        first = asker.actions[0]
        residual = FP64X2 if options.forward else FP64
        if first.method or first[1:3] != (FP64, FP64) or first[3] not in (FP64, residual):
            return None
        if options.definite:
            return None  # the format is meant for Cholesky
        factor = at_least(first[0], (FP32, FP64))
    elif not asker.express_below:
        return None
    return Wanted(options.tol, factor.name, options.forward, options.transposed)


def reason_of(asker: Asker, factor: str = "") -> str:
    """Why systems are solved by the express call, with factors in another format perhaps."""
    if not isinstance(asker, Start):
        return AT_ONCE
    reason = f"You asked for {asker.text} first."
    if factor and asker.actions[0][0].name != factor:
        reason += f" lu does not run in it here: {factor} instead."
    return reason


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
    if type(A) is not np.ndarray and (framework := framework_of(A)) is not None:
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
    options = Options.checked(tol, assume_a, accuracy, lower)
    return factor_system(parse_policy(policy), A, options, columns, device)


def factor_system(
    asker: Asker,
    A: Any,
    options: Options,
    columns: int = 1,
    device: str | None = None,
    copy: bool = True,
) -> Factorization | StackedFactorization:
    """`factor` with checked options; without `copy`, a dense A is not to be changed later."""
    if not isinstance(columns, int | np.integer) or columns < 1:
        raise ValueError(f"columns = {columns!r}; pass how many to expect, at least 1")
    if (sparse_on := sparse_place(A, device)) != "cpu":
        options = replace(options, sparse_on=sparse_on)
        with sparse_gpu(A, device) if sparse_on == "cuda" else nullcontext():
            return factor_system(asker, on_host(A), options, columns, copy=copy)
    place = place_of(A, None, device)
    if place is not None:
        with place.entered(A):
            meant, rest = options.meant(place.array("A", A)), options.rest
            if meant.ndim > 2:
                return StackedFactorization(
                    meant,
                    lambda one: _factored(asker, one, rest, int(columns), place),
                    _at_once(asker, rest, place, meant.shape[-1]),
                )
            return _factored(asker, meant, rest, int(columns), place, copy)
    with ieee_arithmetic():
        A = options.meant(A)
        if not is_sparse(A) and np.ndim(A) > 2:
            stack, rest = dense_array("A", A, real=False), options.rest
            return StackedFactorization(
                stack,
                lambda one: _factored(asker, one, rest, int(columns), None),
                _at_once(asker, rest, None, stack.shape[-1]),
            )
        return _factored(asker, A, options, int(columns), None, copy)


def _factored(
    asker: Asker, A: Any, options: Options, columns: int, place: Place | None, copy: bool = True
) -> Factorization:
    def decided(matrix: Any) -> Decided:
        start = perf_counter()
        backend = backend_for(options.sparse_on)
        system = prepare(matrix, columns, place, copy=copy, backend=backend)
        return system, decide(system, asker, options), perf_counter() - start

    factor, array, is_copy = express_format(asker), A, False
    if place is None and not is_sparse(A):
        array = dense_array("A", A, real=False)
        is_copy = type(A) is np.ndarray and not np.may_share_memory(array, A)

    bound, wanted = _express_below(asker, options), wanted_of(asker, options)
    if place is None and is_sparse(A) and wanted is not None:
        most = math.inf if wanted.is_low else asker.express_below
        made = sparse_factors(A, wanted, columns, most)
        if made is not None:
            action = express_action(made.factor, wanted.forward, made.method)
            reason = reason_of(asker, wanted.factor)
            parts = SmallFactors(SparseSequence(made, most).next, decided, action, reason)
            return Factorization._of_small(made, parts, options)

    zeros = _zeros(asker, options)

    def factorized(matrix: Any, own: bool = False) -> DenseFactors | ThreadedFactors | None:
        return dense_factors(matrix, options.tol, bound, factor, options.forward, own, zeros)

    if place is None and (express := factorized(array, is_copy or not copy)) is not None:
        action = express_action(express.factor, options.forward, express.method)
        small = SmallFactors(factorized, decided, action, reason_of(asker))
        return Factorization._of_small(express, small, options)
    del array  # A in another byte order is converted again, into the copy that is kept
    system, plan, seconds = decided(A)
    return Factorization(system, plan, options, seconds)


def _order_of(A: Any) -> int:
    """Of a dense matrix; 0 of others."""
    return len(A) if isinstance(A, np.ndarray) and A.ndim == 2 else 0


def _columns_of(b: Any) -> int:
    shape = b.shape if hasattr(b, "shape") else np.shape(b)
    return max(1, shape[1]) if len(shape) == 2 else 1


def _in_memory_of(b: Any, x: Any, A: Any) -> Any:
    """x in the memory of b, where it fits, and where that is not A's."""
    same = type(b) is type(x) is np.ndarray and b.dtype == x.dtype and b.shape == x.shape
    if not (same and b.flags.f_contiguous and b.flags.writeable):
        return x
    if np.may_share_memory(b, A.data if is_sparse(A) else np.asarray(A)):
        return x
    b[...] = x
    return b
