"""Small systems without decisions: solved and verified by one call, through the gate of all.

For NumPy's own arrays of float32, float64, complex64 and complex128 that is one compiled call on
one thread (`cpp/native/express_solve.hpp`): copy, LU in double precision, substitution, residual,
corrections, gate, and all that again with A and b scaled by powers of two if need be. What such a
call must know of a system follows from shapes, types and tolerance, and is kept in `memo`.

A system that is refused (pivots that are zero or suspiciously small, a backward error above the
tolerance, NaN) goes on to the general path, which finds out why and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise.actions import Action
from roundwise.algorithms import Outcome, OutcomeStatus
from roundwise.algorithms.accuracy import default_tolerance, upper_bounds
from roundwise.algorithms.conditioning import LOST
from roundwise.algorithms.deflation import SPAN
from roundwise.algorithms.verified_lu import VerifiedLU
from roundwise.backends.native import exact
from roundwise.backends.native.small_sparse import random_vector
from roundwise.backends.native.structured import BAND, PERHAPS_PERMUTED, Found, structured_method
from roundwise.backends.real_form import OVER_ROOT_2, ROOT_2
from roundwise.features.probe import looks_positive_definite
from roundwise.formats import FP32, FP64, FP64X2
from roundwise.machine.threads import factorization_threads, ieee_arithmetic, spinning_threads_aside
from roundwise.solver.decide import STRUCTURED_FROM
from roundwise.solver.express_structured import ACCEPTED, NO_STRUCTURE, UNKNOWN, solve_permuted
from roundwise.solver.inputs import answer_dtype
from roundwise.solver.prepare import AT_ONCE, Wanted
from roundwise.solver.solution import Solution
from roundwise.solver.system import AS_LARGE, joined_parts, split_parts
from roundwise.solver.trust.examining import FEW_DIGITS, SUSPICIOUS, knowledge_of

Array = NDArray[Any]

ONE_THREAD_UP_TO = 256
"""The largest system that one thread solves; larger ones take our LU with several.

A taste: on two cores beside other work both took the same time, within noise, from n = 128 to 500;
more cores gain more, the larger n is."""

MODERATE = 1e-100, 1e100
"""Between these, squares of a complex system's numbers neither overflow nor vanish."""

MOST_KNOWN = 4096
"""Entries of `memo`, so that a program with ever new shapes does not fill the memory."""

BLOCK_SHARE, LEAST_BLOCK, LARGEST_BLOCK = 0.6, 2, 256
"""What sums of blocks in a residual may add to a backward error, as a share of the tolerance, and
the products of a block: fewer take as long as twice the precision does, more gain no time."""

EXPRESS_TYPES = tuple(map(np.dtype, (np.float64, np.float32, np.complex128, np.complex64)))


class Gate(NamedTuple):
    """The arguments of the compiled call after the arrays (`ExpressGate` in C++)."""

    tolerance: float
    growth: float
    block_error: float
    exact_error: float
    suspicious: float
    least: float
    most: float
    block: int


class Known(NamedTuple):
    """What shapes, types and tolerance say of a system."""

    size: float  # n, or the n of a real system that takes as many operations
    n: int
    dtype: Any  # of x
    tolerance: float
    gate: Gate
    unit: float  # the backward error of the answer over that of the columns that are solved for
    is_compiled: bool
    factor: str  # the format of the factors
    forward: bool  # whether x itself is to be right to the last place
    rest: tuple[Any, ...]  # the arguments of a compiled call that has factors, after the arrays
    arguments: tuple[Any, ...]  # and of one that makes them


class ExpressAnswer(NamedTuple):
    """An x that has passed the gate."""

    x: Array
    backward_error: float
    """What the gate compared with the tolerance: an upper bound of the exact backward error."""
    tolerance: float
    pivot_ratio: float
    """The smallest pivot over the largest; NaN where the factors of a sparse A do not tell."""
    method: str = "lu"
    factor: str = FP64.name
    corrections: int = 0
    forward: bool = False
    """Whether x is right to a few units in the last place."""
    structure: Found = UNKNOWN
    """What was known of the zeros of A, for other methods than LU."""
    factors: Any = None
    """`SparseFactors` that may serve the next matrix, where the call has made some."""


class ExpressFactors(Protocol):
    """Factors of a small matrix with which one compiled call solves: substitution, residual, gate.

    A `Factorization` that has such factors asks them first; what they refuse is solved by the
    general path, which finds out why. They never change, so that threads may share them.
    """

    @property
    def A(self) -> Any:
        """The matrix, a copy of their own; what `full_output` tells of an answer is computed from
        it."""

    def solve(self, b: Any, trans: Any) -> ExpressAnswer | None:
        """``A^-1 b``, or that of the transpose; `trans` is what `Factorization.solve` takes.

        None if the answer does not pass the gate, or if b or `trans` is not what one call takes:
        others than NumPy's own arrays, of the wrong shape, with NaN. It raises nothing.
        """


memo: dict[Any, Any] = {}
"""What shapes, types and what is asked say of an express call, of any kind of system; None for
those that are not for one. `memo.clear()` frees memory, and lets `lstsq` decide anew where prices
have changed: a machine was calibrated meanwhile, or has other threads. Nothing else depends on
these."""


def remembered(make: Callable[..., Any], *key: Any) -> Any:
    """``make(*key)``, made once for each key; what makes others has keys of another length."""
    try:
        return memo[key]
    except KeyError:
        pass
    if len(memo) >= MOST_KNOWN:
        memo.clear()
    with ieee_arithmetic():  # the gate of a thread that rounds upwards is not that of the next
        made = memo[key] = make(*key)
    return made


class Refused(NamedTuple):
    """An x that did not pass the gate, or shows signs of few right digits."""

    method: str = "lu"

    def outcome(self, wanted: Wanted, seconds: float) -> Outcome:
        """The first attempt of whoever goes on."""
        return Outcome(
            OutcomeStatus.STAGNATED,
            None,
            reason="in one call, x did not pass the gate, or showed signs of few right digits",
            action=express_action(wanted.factor, wanted.forward, self.method).text,
            arithmetic="native",
            seconds=seconds,
        )


REFUSED = Refused()


def attempt(A: Any, b: Any, wanted: Wanted) -> ExpressAnswer | Refused | None:
    """A dense system by one call, if it is small or A a band or triangle; None if it is neither.

    A and b are NumPy's own arrays: others give None, and never an error. Where x itself is to be
    right, bands and triangles are left to the general path. Sparse systems: `express_sparse.py`.
    """
    if not type(A) is type(b) is np.ndarray:
        return None
    key = (A.shape, A.dtype, b.shape, b.dtype, *wanted[:3])
    known = memo.get(key) or known_of(*key)  # small systems take microseconds
    if known is None:
        return _converted(A, b, wanted)
    structure = None if wanted.forward else wanted.zeros
    below, look = wanted.takes(known.size), structure == UNKNOWN
    if structure is not None and not (look and below and known.is_compiled):
        found = _structured(A, b, known, structure)
        if found is not None:
            return found
    if not below:
        return None
    large = known.n >= STRUCTURED_FROM and A.dtype.kind == "f"
    if large and (looks_positive_definite(A) or (structure is None and has_structure(A))):
        return None
    return _run(A, b, known, look) or REFUSED


def _structured(
    A: Array, b: Array, known: Known, structure: Found
) -> ExpressAnswer | Refused | None:
    """The answer for a band or a triangle; None if A is none."""
    x, threads, gate = np.empty(b.shape, known.dtype), factorization_threads(), known.gate
    kind, below, above = structure
    found = _kernels.structured_solve(A, b, x, kind, below, above, threads, *gate)
    if found[0] == NO_STRUCTURE and found[4] == PERHAPS_PERMUTED:
        found = solve_permuted(A, b, x, gate, threads) or found
    status, error, ratio, steps, kind = found
    if status == NO_STRUCTURE:
        return None
    method = "banded" if kind == BAND else "triangular"
    if status != ACCEPTED:
        return Refused(method)
    told = method, known.factor, steps, False, structure
    return ExpressAnswer(x, known.unit * error, known.tolerance, ratio, *told)


def _run(A: Array, b: Array, known: Known, look: bool = False) -> ExpressAnswer | Refused | None:
    """By LU, but with `look` a small band or triangle as such."""
    if not known.is_compiled:
        return None if known.forward else _by_threads(A, b, known)
    given = with_witness(b, known.factor)
    x = np.empty(given.shape, known.dtype)
    status, error, pivot_ratio, steps = _kernels.express_solve(A, given, x, look, *known.arguments)
    if status == NO_STRUCTURE:  # or rather, one that may be used
        return _structured(A, b, known, UNKNOWN) or _run(A, b, known)
    if status != 0:
        return None
    x = x if given is b else without_witness(x, b)
    error, tolerance = known.unit * error, known.tolerance
    return ExpressAnswer(x, error, tolerance, pivot_ratio, "lu", known.factor, steps, known.forward)


def with_witness(b: Array, factor: str) -> Array:
    """Right-hand sides for factors of a format: b itself, or below FP64 with a random column more.

    Pivots of low factors do not show that A is singular where rounding errors have replaced the
    last one, and A x = b may be solvable all the same. A random right-hand side is not, so that its
    column does not pass the gate. b is a vector, or columns, or a stack of such.
    """
    if factor == FP64.name:
        return b
    columns = b[:, None] if b.ndim == 1 else b
    witness = random_vector(columns.shape[-2])[:, None].astype(b.dtype)
    return np.concatenate([columns, np.broadcast_to(witness, (*columns.shape[:-1], 1))], axis=-1)


def without_witness(x: Array, b: Array) -> Array:
    """The answers for the columns of b."""
    return x[:, 0].copy() if b.ndim == 1 else x[..., :-1].copy()


def _converted(A: Array, b: Array, wanted: Wanted) -> ExpressAnswer | Refused | None:
    """The same for numbers of other types that double precision can hold, integers for example."""
    if A.dtype in EXPRESS_TYPES and b.dtype in EXPRESS_TYPES:
        return None  # the shapes are no system's
    if not (is_held(A.dtype) and is_held(b.dtype)):
        return None
    return attempt(as_known_type(A), as_known_type(b), wanted)


def is_held(dtype: Any) -> bool:
    """Whether double precision holds numbers of this type, real or complex ones."""
    return dtype in EXPRESS_TYPES or np.can_cast(dtype, np.complex128)


def as_known_type(A: Array) -> Array:
    """A in a type that `express` takes: itself, or converted to double precision."""
    native = A.dtype.newbyteorder("=")
    if native in EXPRESS_TYPES:
        return A.astype(native, copy=False)
    with ieee_arithmetic():
        return A.astype(np.complex128 if A.dtype.kind == "c" else np.float64)


def answered(found: Any) -> ExpressAnswer | None:
    """What came of an attempt, if that is an answer."""
    return found if isinstance(found, ExpressAnswer) else None


def solution_of(
    answer: ExpressAnswer,
    A: Any,
    b: Array,
    tol: float | None,
    seconds: float,
    again: Callable[[], ExpressAnswer | None] | None = None,
    reason: str = AT_ONCE,
    arithmetic: str = "native",
) -> Solution:
    """What `full_output` returns: the same x, and what is known of its error when it is read.

    `seconds` are those of the whole call, which is not timed in parts: they count as ``factor``.
    `again` repeats it, to see whether A, b and x are what they were.
    """
    accuracy = "forward" if answer.forward else "backward"
    action = str(express_action(answer.factor, answer.forward, answer.method))
    outcome = Outcome(
        OutcomeStatus.CONVERGED,
        None,
        nbe=answer.backward_error,
        outer_iterations=answer.corrections,
        action=action,
        arithmetic=arithmetic,
        seconds=seconds,
    )
    error, x = answer.backward_error, answer.x

    def measured() -> float:
        if again is None:
            return _measured(answer, A, b, tol)
        found = again()
        same = found is not None and bool(np.array_equal(found.x, answer.x))
        return found.backward_error if found is not None and same else math.nan

    return Solution(
        x,
        "accepted",
        action,
        error,
        answer.tolerance,
        knowledge_of(A, b, x, error, measured),
        (outcome,),
        {"features": 0.0, "factor": seconds, "refine": 0.0, "verify": 0.0},
        reason,
        accuracy=accuracy,
    )


def express_action(factor: Any, forward: bool, method: str = "lu") -> Action:
    """What an express call runs: factors in a format, and FP64, or residuals in twice that."""
    return Action([factor, FP64, FP64, FP64X2 if forward else FP64], method)


def _measured(answer: ExpressAnswer, A: Any, b: Array, tol: float | None) -> float:
    """The backward error of an answer, computed again; NaN if A, b or x has changed."""
    dense = as_known_type(A)
    b = as_known_type(b)
    asked = tol, answer.factor, answer.forward
    known = known_of(dense.shape, dense.dtype, b.shape, b.dtype, *asked)
    found: ExpressAnswer | Refused | None = None
    if known is not None:
        is_lu = answer.method == "lu"
        found = _run(dense, b, known) if is_lu else _structured(dense, b, known, answer.structure)
    if not isinstance(found, ExpressAnswer) or not np.array_equal(found.x, answer.x):
        return math.nan
    return found.backward_error


def gate_of(
    n: int, is_complex: bool, tolerance: float, factor: str = FP64.name, forward: bool = False
) -> Gate:
    """The gate for n equations, and how its residuals are summed (docs/accuracy.md).

    The error of a block of q products is ``(q + 1) u``, times the square root of 2 if A is complex.
    """
    terms, root = (2 * n, ROOT_2) if is_complex else (n, 1.0)
    u, exact_error = FP64.unit_roundoff, exact.error_of(terms)
    # Backward errors of a complex A may count as larger by that root, too, and need as much room.
    block = min(int(BLOCK_SHARE * tolerance / (root * root * u)) - 1, LARGEST_BLOCK)
    block = block if block >= LEAST_BLOCK else exact.EXACT
    block_error = exact.error_of(terms, block, is_complex)
    least, most = MODERATE if is_complex else (exact.LEAST, exact.MOST)
    growth = upper_bounds(1.0, terms, 0.0)
    suspicious = suspicious_ratio(n, factor, forward)
    return Gate(tolerance, growth, block_error, exact_error, suspicious, least, most, block)


def suspicious_ratio(n: int, factor: str, forward: bool = False) -> float:
    """Pivots of FP64 factors at most so much smaller than others are suspicious.

    So are those of FP32 factors that may be lost in rounding errors. In 16 bits they hardly tell:
    that a random column converges does (`with_witness`). Where x itself is to be right, the
    compiled call finds lost directions, and pivots only tell whether products keep their bits.
    """
    if forward:
        return 2.0**-SPAN
    if factor == FP64.name:
        return SUSPICIOUS
    return LOST * default_tolerance(n, FP32) if factor == FP32.name else 0.0


def known_of(*key: Any) -> Known | None:
    """What shapes, types, tolerance and format say (see `_known`); None if that is no system."""
    return remembered(_known, *key)  # type: ignore[no-any-return]


def _known(
    shape: tuple[int, ...],
    dtype: Any,
    b_shape: tuple[int, ...],
    b_dtype: Any,
    tol: float | None,
    factor: str = FP64.name,
    forward: bool = False,
) -> Known | None:
    if dtype not in EXPRESS_TYPES or b_dtype not in EXPRESS_TYPES or len(b_shape) not in (1, 2):
        return None
    n = b_shape[0]
    if shape != (n, n) or n == 0 or 0 in b_shape:
        return None
    answer = np.dtype(answer_dtype(np.empty(0, dtype), np.empty(0, b_dtype)))
    is_single, is_complex = answer.itemsize < (16 if answer.kind == "c" else 8), dtype.kind == "c"
    tolerance = default_tolerance(n, FP32 if is_single else FP64) if tol is None else tol
    # The parts of a complex b are columns of a real system (`Factorization.solve` has the proof).
    share, unit = (OVER_ROOT_2, ROOT_2) if b_dtype.kind == "c" and not is_complex else (1.0, 1.0)
    gate = gate_of(n, is_complex, tolerance * share, factor, forward)
    size, low = AS_LARGE * n if is_complex else float(n), factor != FP64.name
    double = dtype == b_dtype == np.float64
    compiled = n <= ONE_THREAD_UP_TO or low or (forward and not double)
    rest = (*gate, forward)
    given = (size, n, answer, tolerance, gate, unit, compiled, factor, forward)
    return Known(*given, rest, (factor, *rest))


def has_structure(A: Array) -> bool:
    """Whether a real A is a band or a triangle."""
    return structured_method(A) is not None


def _by_threads(A: Array, b: Array, known: Known) -> ExpressAnswer | None:
    """The same by LU with several threads, for larger systems."""
    with ieee_arithmetic(), spinning_threads_aside(known.n):
        lu = VerifiedLU(in_double(A))
        found = answer_of(lu, b, known)
        lu.discard()
    return found


@np.errstate(all="ignore")
def answer_of(lu: VerifiedLU, b: Array, known: Known, trans: str = "N") -> ExpressAnswer | None:
    """What factors by several threads make of b; None if it is refused.

    Perhaps few digits are right then, or A is singular: that is looked into.
    """
    if not lu.pivot_ratio > known.gate.suspicious:
        return None
    split = known.dtype.kind == "c" and not lu.is_complex
    single, double = (np.complex64, np.complex128) if lu.is_complex else (np.float32, np.float64)
    is_single = known.dtype in (np.complex64, np.float32)
    columns = (split_parts(b) if split else b).astype(single if is_single else double, copy=False)
    found = lu.solve(columns, known.gate.tolerance, trans)
    if found is None or SUSPICIOUS * found.stretch > 1.0 or not found.largest < FEW_DIGITS:
        return None
    x = joined_parts(found.x, b.shape) if split else found.x
    error, ratio = known.unit * found.error, lu.pivot_ratio
    return ExpressAnswer(x, error, known.tolerance, ratio, "lu", known.factor, found.corrections)


def in_double(A: Array) -> Array:
    """A as float64 or complex128."""
    return A.astype(np.complex128 if A.dtype.kind == "c" else np.float64, copy=False)


def is_compiled(n: int, A: Array, b: Array) -> bool:
    """Whether systems of n of these types are solved by one thread each, alone or in a stack."""
    return n <= ONE_THREAD_UP_TO or not double_of(A) == double_of(b) == np.float64


def double_of(A: Array) -> Any:
    """The type that `as_known_type` gives an array."""
    native = A.dtype.newbyteorder("=")
    return native if native in EXPRESS_TYPES else np.result_type(native, np.float64)


class Stack(NamedTuple):
    """Systems of a stack: matrices (m, n, n) and columns (l, n, k), and which of each they have."""

    A: Array
    B: Array
    places: tuple[Array, Array]  # indices of A and of B; none where all have theirs, or one is all
    systems: int


class StackAnswers(NamedTuple):
    """What one compiled call found for a stack."""

    X: Array  # of use where it was accepted
    errors: NDArray[np.float64]  # upper bounds of backward errors, infinite where X does not hold
    refused: int  # how many
    tolerance: float


def express_stack(
    stack: Stack, wanted: Wanted, kept: _kernels.ExpressFactors | None = None
) -> StackAnswers | None:
    """A stack, not empty, by one call, which shares the systems among threads.

    None if types and shapes are not for it. `kept` are factors of A.
    """
    A, B = stack.A, stack.B
    known = known_of(A.shape[1:], A.dtype, B.shape[1:], B.dtype, *wanted[:3])
    if known is None:
        return None
    given_B = with_witness(B, wanted.factor)
    X = np.empty((stack.systems, *given_B.shape[1:]), known.dtype)
    errors, threads = np.empty(stack.systems), factorization_threads()
    given: tuple[Any, ...] = (given_B, *stack.places, X, errors)
    asked: tuple[Any, ...] = (*(known.arguments if kept is None else known.rest), threads)
    if kept is None:
        refused = _kernels.express_solve_stack(A, *given, *asked)
    else:
        refused = _kernels.express_substitute_stack(kept, *given, *asked)
    X = X if given_B is B else without_witness(X, B)
    if known.unit != 1.0:
        errors *= known.unit
    return StackAnswers(X, errors, refused, known.tolerance)
