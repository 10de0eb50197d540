"""What `roundwise.lstsq` returns with ``full_output=True``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from roundwise.actions import Action
from roundwise.algorithms import Outcome
from roundwise.solver.answer import VerifiedAnswer, attempt_in_words


@dataclass(frozen=True, eq=False)
class LeastSquaresSolution(VerifiedAnswer):
    """A verified least squares solution, and how it came about.

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
    residual_norm : float or array
        ``||b - A x||_2`` of each right-hand side.
    condition : float
        An estimate of the condition number in the 2-norm, after the columns of A (its rows if
        m < n) were scaled to about the same length; that of A as it was given if `action` says
        ``svd``.
    attempts : tuple of Outcome
        The outcome of each action that was tried; the last one gave the answer.
    timings : dict
        Seconds of ``look`` (checking, scaling, deciding), ``solve`` (all attempts) and ``rank``.
    decision : str
        Why the first attempt was chosen.

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
    residual_norm: Any
    condition: float
    attempts: tuple[Outcome, ...] = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)
    decision: str = field(repr=False)

    def __repr__(self) -> str:
        return self._summary(f"rank {self.rank}")

    def explain(self) -> str:
        """The story of this solve in plain words."""
        lines = [self.decision, *(_in_words(one) for one in self.attempts)]
        lines.append(
            f"The answer passed the gate: changing A and b by {self.backward_error:.1e} of their "
            f"norms makes it exact; up to {self.tolerance:.1e} is accepted."
        )
        lines += [*self._trust(), self._time()]
        return "\n".join(lines)

    def _trust(self) -> list[str]:
        which = "it is the only solution" if self.is_unique else "it is the shortest solution"
        return [f"A has rank {self.rank}: {which}. Condition number: {self.condition:.1e}."]


METHOD_NAMES = {
    "cholesky": "Cholesky of A'A",
    "choleskyqr": "Cholesky QR, twice,",
    "qr": "Householder QR",
    "svd": "SVD",
}


def _in_words(attempt: Outcome) -> str:
    action = Action.parse(attempt.action)
    factors = f"{METHOD_NAMES.get(action.method, action.method)} in {action[0]}"
    return attempt_in_words(attempt, factors, f"{factors} failed")
