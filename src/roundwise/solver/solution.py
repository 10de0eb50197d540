"""What a solve returns, and what it raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.backends.arrays import array_module
from roundwise.exceptions import RoundwiseError
from roundwise.solver.answer import VerifiedAnswer, attempt_in_words
from roundwise.solver.trust.knowledge import Knowledge, SystemChanged, right_digits


@dataclass(frozen=True, eq=False)
class Solution(VerifiedAnswer):
    """A verified answer, and how it came about.

    x is what a call without `full_output` returns, bit for bit. What is to be known of its error
    (`forward_error_bound`, `error_kind`, `error_source`, `condition`, `digits`, and `explain`) is
    computed when it is first read, then kept; that may take longer than the solve, and never
    changes x. Until then a Solution refers to A itself, and keeps a copy of b and the factors: for
    a dense system some n^2 numbers. Pickling it reads all of that, so that the copy needs neither.

    Parameters
    ----------
    x : array
        The answer, shaped as b.
    others
        See the attributes.

    Attributes
    ----------
    status : str
        ``"accepted"``: the first attempt passed the gate; ``"escalated"``: a later one did.
    action : str
        The action that gave the answer: the method, and the formats of factor, update, gmres and
        residual.
    backward_error : float
        ``||b - A x|| / (||A|| ||x|| + ||b||)`` in the max norm, the largest over the right-hand
        sides, as the gate computed it. The gate also counts the rounding errors of that.
    tolerance : float
        The largest backward error that the gate accepts.
    forward_error_bound : float
        A bound or an estimate, as `error_kind` says, of ``||x - x_true|| / ||x_true||`` in the max
        norm; the largest over the right-hand sides. Infinite if no digit of x is certain.
    error_kind : str
        ``"bound"``: `forward_error_bound` is proved, with all rounding errors counted;
        ``"estimate"``: it is likely to hold.
    error_source : str
        How `forward_error_bound` was obtained, in a few words.
    condition : float
        A lower bound of the condition number in the 1-norm: there is a vector y for which
        ``||A|| ||y|| / ||A y||`` is that large. It is seldom far below the condition number. Where
        the entries of A differ very much in size, it belongs to A with rows and columns scaled by
        powers of two.
    attempts : tuple of Outcome
        The outcome of each action that was tried; the last one gave the answer. They hold no x.
    timings : dict
        Seconds of ``features`` (inspecting A and deciding), ``factor``, ``refine`` and ``verify``.
        What is computed when it is read is not among them.
    decision : str
        Why the first attempt was chosen.
    accuracy : str
        ``"forward"``: full accuracy was asked for, and x is right to a few units in the last
        place; ``"backward"``: what holds for every answer, a small backward error.
    knowledge : Knowledge
        Finds out what is to be known of the error of x.

    Raises
    ------
    SystemChanged
        A `ValueError`, by the attributes that are computed when they are first read: A or x has
        been changed in place since the solve.

    Examples
    --------
    >>> solution = rw.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0], full_output=True)
    >>> solution.status, solution.error_kind
    ('accepted', 'bound')
    >>> solution.backward_error <= solution.tolerance
    True
    """

    x: NDArray[Any] = field(repr=False)
    status: str
    action: str
    backward_error: float
    tolerance: float
    knowledge: Knowledge = field(repr=False)
    attempts: tuple[Outcome, ...] = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)
    decision: str = field(repr=False)
    accuracy: str = "backward"

    @property
    def forward_error_bound(self) -> float:
        return self.knowledge.estimate.error

    @property
    def error_kind(self) -> str:
        return self.knowledge.estimate.kind

    @property
    def error_source(self) -> str:
        return self.knowledge.estimate.source

    @property
    def condition(self) -> float:
        return self.knowledge.estimate.condition

    @property
    def inner_iterations(self) -> int:
        """GMRES iterations of the accepted attempt."""
        return self.attempts[-1].inner_iterations

    @property
    def history(self) -> NDArray[np.float64]:
        """The backward errors of the accepted attempt: before each refinement step, and at last.

        Of a Krylov method's answer (`IterativeSolution`) they are residual norms by iteration.
        """
        if not self.attempts:
            return np.empty(0)
        steps = (step.get("backward_error", np.nan) for step in self.attempts[-1].history)
        return np.array([*steps, self.backward_error])

    @property
    def digits(self) -> int:
        """About how many decimal digits of the largest entries of x are right; 0 if none is."""
        double = str(self.x.dtype).endswith(("float64", "complex128"))  # NumPy's, CuPy's, torch's
        most = 16 if double else 7
        return right_digits(self.forward_error_bound, most)

    def __repr__(self) -> str:
        return self._summary()

    def explain(self) -> str:
        """The story of this solve in plain words.

        Examples
        --------
        >>> solution = rw.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0], full_output=True)
        >>> "Verified: x solves exactly a system within" in solution.explain()
        True
        """
        lines = [self.decision]
        lines += [_in_words(attempt) for attempt in self.attempts]
        lines.append(
            f"Verified: x solves exactly a system within {self.backward_error:.1e} (relative) of "
            f"yours; the limit is {self.tolerance:.1e}."
        )
        if self.accuracy == "forward":
            lines.append(
                "It was refined to full accuracy, with residuals in twice the precision: all "
                "corrections that are left would change its last place at most."
            )
        lines += [*self._trust(), self._time()]
        return "\n".join(lines)

    def _trust(self) -> list[str]:
        """How far x is to be trusted."""
        try:
            digits = self.digits
        except SystemChanged as changed:
            return [f"Its error is not known: {changed}."]
        if digits:
            about = "at most" if self.error_kind == "bound" else "about"
            error = f"Its relative error is {about} {self.forward_error_bound:.1e}"
            error += f" ({self.error_source}): "
            error += f"{digits} digits of its largest entries are right."
        else:
            error = f"No digit of it is certain: {self.error_source}."
        return [error, f"The condition number is at least {self.condition:.1e}."]


def joined(solutions: Iterable[Solution], shape: tuple[int, ...]) -> Solution:
    """The solution, of this shape, of all columns from those of blocks of them.

    It has the worst errors, and all attempts. Each block is dropped when the next is asked for.
    """
    parts: list[Solution] = []
    done = 0
    for one in solutions:
        if not parts:
            X = array_module(one.x).empty(shape, one.x.dtype, order="F")
        block = X[:, done : done + one.x.shape[1]]
        block[:] = one.x
        parts.append(replace(one, x=block))
        done += block.shape[1]
    return replace(
        parts[-1],
        x=X,
        status=max((one.status for one in parts), key=("accepted", "escalated").index),
        backward_error=max(one.backward_error for one in parts),
        knowledge=Knowledge.of_all([one.knowledge for one in parts]),
        attempts=tuple(attempt for one in parts for attempt in one.attempts),
        timings={name: sum(one.timings[name] for one in parts) for name in parts[-1].timings},
        accuracy=min((one.accuracy for one in parts), key=("backward", "forward").index),
    )


def _in_words(attempt: Outcome) -> str:
    action = Action.parse(attempt.action)
    factors = f"by {action.method} in {action[0]}"
    return attempt_in_words(attempt, f"Factors {factors}", f"Factorizing {factors} failed")


@dataclass(frozen=True, eq=False)
class LeastSquaresSolution(VerifiedAnswer):
    """A verified least squares solution, and how it came about.

    x is what a call without `full_output` returns, bit for bit. `residual_norm` and, where the rank
    did not need it, `condition` are computed when they are first read. Until then the factors and
    the residual stay in memory, but not A.

    Parameters
    ----------
    x : array, (n,) or (n, k)
    status : str
        ``"accepted"``: the first attempt passed the gate; ``"escalated"``: a later one did.
    action : str
        The action that gave x: the method, and the formats of factor, update, gmres and residual.
    backward_error : float
        x is an exact least squares solution of a problem whose A and b differ from yours by at most
        this much, relative to their norms. It is proved (docs/least-squares.md), and the largest
        over the right-hand sides.
    tolerance : float
        The largest backward error that the gate accepts.
    rank : int
        The number of singular values above `rcond` times the largest.
    is_unique : bool
        Whether x is the only solution (rank n). If not, it is the shortest one.
    knowledge : Knowledge
        Finds out `residual_norm` and `condition`, in this order, as its `estimate`.
    attempts : tuple of Outcome
        The outcome of each action that was tried; the last one gave the answer.
    timings : dict
        Seconds of ``look`` (checking, scaling, deciding), ``solve`` (all attempts) and ``rank``.
    decision : str
        Why the first attempt was chosen.

    Attributes
    ----------
    residual_norm : float or array
        ``||b - A x||_2`` of each right-hand side.
    condition : float
        An estimate of the condition number in the 2-norm, after the columns of A (its rows if
        m < n) were scaled to about the same length; that of A as it was given if `action` says
        ``svd``.

    Examples
    --------
    >>> A, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 2.0, 4.0])
    >>> solution = rw.lstsq(A, b, full_output=True)
    >>> solution.rank, solution.is_unique, solution.backward_error <= solution.tolerance
    (2, True, True)
    """

    x: NDArray[Any] = field(repr=False)
    status: str
    action: str
    backward_error: float
    tolerance: float
    rank: int
    is_unique: bool
    knowledge: Any = field(repr=False)
    attempts: tuple[Outcome, ...] = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)
    decision: str = field(repr=False)

    @property
    def residual_norm(self) -> Any:
        return self.knowledge.estimate[0]

    @property
    def condition(self) -> float:
        return float(self.knowledge.estimate[1])

    def __repr__(self) -> str:
        return self._summary(f"rank {self.rank}")

    def explain(self) -> str:
        """The story of this solve in plain words."""
        lines = [self.decision, *(_least_squares_in_words(one) for one in self.attempts)]
        lines.append(
            f"Verified: x is an exact least squares solution for A and b within "
            f"{self.backward_error:.1e} (relative) of yours; the limit is {self.tolerance:.1e}."
        )
        lines += [*self._trust(), self._time()]
        return "\n".join(lines)

    def _trust(self) -> list[str]:
        which = "it is the only solution" if self.is_unique else "it is the shortest solution"
        return [f"A has rank {self.rank}: {which}. Condition number: {self.condition:.1e}."]


_TALL_METHODS = {"cholesky": "Cholesky of A'A", "qr": "Householder QR", "svd": "SVD"}


def _least_squares_in_words(attempt: Outcome) -> str:
    action = Action.parse(attempt.action)
    factors = f"{_TALL_METHODS.get(action.method, action.method)} in {action[0]}"
    return attempt_in_words(attempt, factors, f"{factors} failed")


class SolveFailed(RoundwiseError, np.linalg.LinAlgError):
    """No answer passed the gate; `reason` says why.

    `x` is the best answer that was found, with `backward_error`. If there is none at all, `x` is
    None and `backward_error` infinite. `attempts` holds the outcome of every action that was tried.
    """

    def __init__(
        self,
        reason: str,
        x: NDArray[Any] | None = None,
        backward_error: float = np.inf,
        attempts: tuple[Outcome, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.reason, self.x, self.backward_error = reason, x, backward_error
        self.attempts = attempts
