"""What the answers of `solve` and of `lstsq` tell about themselves: how they came about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roundwise.algorithms import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class VerifiedAnswer(ABC):
    """An answer that has passed a gate, with the attempts that led to it."""

    x: NDArray[Any]
    status: str
    action: str
    backward_error: float
    tolerance: float
    attempts: tuple[Outcome, ...]
    timings: Mapping[str, float]
    decision: str

    @property
    def seconds(self) -> float:
        """The time of the whole solve."""
        return sum(self.timings.values())

    @property
    def iterations(self) -> int:
        """Corrections of the accepted attempt; 0 if there was nothing to solve."""
        return self.attempts[-1].outer_iterations if self.attempts else 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """x, so that NumPy's functions take an answer where they take an array."""
        return np.array(self.x, dtype=dtype, copy=copy)

    @abstractmethod
    def _trust(self) -> list[str]:
        """How far x is to be trusted, in sentences."""

    def _summary(self, *facts: str) -> str:
        """One line for `repr`, with facts of this kind of answer."""
        shape = " x ".join(str(size) for size in self.x.shape)
        parts = (self.status, self.action, f"x of {shape}", *facts)
        return (
            f"{type(self).__name__}({', '.join(parts)}, "
            f"backward error {self.backward_error:.1e} <= {self.tolerance:.1e}, "
            f"{1e3 * self.seconds:.3g} ms)"
        )

    def _time(self) -> str:
        parts = ", ".join(f"{name} {1e3 * s:.3g}" for name, s in self.timings.items())
        return f"Time: {1e3 * self.seconds:.3g} ms ({parts})."

    def _repr_html_(self) -> str:
        """What a notebook shows: the ladder of attempts, errors against the gate, times."""
        from roundwise.notebook.cards import solution_card

        return solution_card(self, " ".join(self._trust()))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the backward error after every step of every attempt, and the gate.

        Needs ``pip install "roundwise[plot]"``.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            To draw on; by default a new figure is made.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> solution = rw.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0], full_output=True)
        >>> ax = solution.plot()
        """
        from roundwise.notebook.cards import plot_attempts

        title = f"{type(self).__name__}: {self.status}"
        return plot_attempts(self.attempts, self.tolerance, title, ax)


def attempt_in_words(attempt: Outcome, factors: str, failed: str) -> str:
    """One attempt in a sentence; `factors` names what was refined with, `failed` what was not."""
    if not np.isfinite(attempt.nbe):
        work = failed
    else:
        how = "refinement steps"
        if attempt.inner_iterations:
            how = f"steps, with GMRES ({attempt.inner_iterations} iterations)"
        work = f"{factors} and {attempt.outer_iterations} {how} gave a backward error of "
        work += f"{attempt.nbe:.1e}"
    verdict = "accepted" if attempt.converged and not attempt.reason else attempt.reason
    return f"{work} in {1e3 * (attempt.seconds or 0.0):.3g} ms: {verdict}."
