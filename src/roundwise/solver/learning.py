"""`Solver`: a front door that learns from its own solves."""

from __future__ import annotations

import warnings
from functools import partial
from os import PathLike
from typing import Any

from roundwise.machine.identity import Machine
from roundwise.policies.look import context_of
from roundwise.policies.memory import Memory, MemoryFileError
from roundwise.policies.neighbours import Choice, DefaultPolicy, FormatPolicy, get_policy
from roundwise.policies.online import Decision, Learner
from roundwise.solver.factorization import Factorization
from roundwise.solver.front_door import Structure, factor, solve
from roundwise.solver.inputs import CheckedMatrix
from roundwise.solver.solution import Attempt, SolveFailed


class Solver:
    """Solves as `roundwise.solve` does, and learns where to start from how long it took.

    It begins with the default policy, and soon goes by its own measured solves: those of systems
    of the same shape first, then those of similar ones. For a sequence of systems (Newton's
    method, time steps) this means that after a climb the next solve starts higher, and that lower
    formats are tried again from time to time. Systems so small that no format gains time are
    solved at once, and teach nothing. One Solver may be used by many threads.

    Learning costs no digits: every answer passes the same gate.

    Parameters
    ----------
    policy : str or FormatPolicy
        As for `roundwise.solve`; only the default policy can be learned from.
    learn : bool
        False: `policy` decides, and nothing is measured or remembered.
    memory : path-like, optional
        A file to keep what was learned in, on a local disk; several processes may share it. It is
        valid after every solve, even if the process is killed. By default what was learned ends
        with the Solver.
    explore : float
        The share of the time spent solving that trying other formats may cost at most.

    Examples
    --------
    >>> import numpy as np, roundwise
    >>> solver = roundwise.Solver()
    >>> x = solver.solve(np.eye(3), np.ones(3))
    """

    def __init__(
        self,
        policy: str | FormatPolicy = "default",
        *,
        learn: bool = True,
        memory: str | PathLike[str] | None = None,
        explore: float = 0.02,
    ) -> None:
        if not 0 <= explore < 1:
            raise ValueError(f"explore = {explore}; choose a share of the time, 0 <= explore < 1")
        self._policy = get_policy(policy)
        self._learner: Learner | None = None
        if not learn:
            if memory is not None:
                raise ValueError("memory is of no use with learn=False; leave one of them out")
            return
        if not isinstance(self._policy, DefaultPolicy):
            raise ValueError(
                f"policy = {policy!r} is fixed; pass policy='default' to learn, or learn=False"
            )
        self._learner = Learner(self._policy, Memory(Machine.this().key, memory), explore)

    def solve(
        self,
        A: Any,
        b: Any,
        *,
        tol: float | None = None,
        full_output: bool = False,
        assume_a: Structure | None = None,
    ) -> Any:
        """Solve ``A x = b``; see `roundwise.solve` for arguments, results and errors."""
        options: dict[str, Any] = {"tol": tol, "full_output": full_output, "assume_a": assume_a}
        if self._learner is None:
            return solve(A, b, policy=self._policy, **options)
        lessons = _Lessons(self._learner, may_explore=True)
        try:
            return solve(A, b, policy=lessons, **options)
        except SolveFailed as failure:
            lessons.failed(failure.attempts)
            raise
        finally:
            lessons.end()

    def factor(
        self,
        A: Any,
        *,
        tol: float | None = None,
        assume_a: Structure | None = None,
        columns: int = 1,
    ) -> Factorization:
        """Factorize A once, to solve with many right-hand sides; see `roundwise.factor`.

        The first solve with it teaches. It is never used to explore: its factors are to stay.
        """
        policy: FormatPolicy = self._policy
        if self._learner is not None:
            policy = _Lessons(self._learner, may_explore=False)
        return factor(A, tol=tol, policy=policy, assume_a=assume_a, columns=columns)

    def summary(self) -> str:
        """What was learned, as a table: relative times and solves, by system and first format."""
        return "This Solver does not learn." if self._learner is None else self._learner.summary()

    def __repr__(self) -> str:
        if self._learner is None:
            return f"Solver({self._policy!r}, learn=False)"
        account, memory = self._learner.account, self._learner.memory.path
        kept = "" if memory is None else f", memory={str(memory)!r}"
        return (
            f"Solver({account.solves} solves learned from, {account.seconds:.3g} s, thereof "
            f"{account.exploring:.2g} s to explore{kept})"
        )


class _Lessons:
    """The policy of one call: decides, and passes on what came of it."""

    def __init__(self, learner: Learner, may_explore: bool) -> None:
        self._learner, self._may_explore = learner, may_explore
        self.at_once = learner.policy.at_once
        self._decisions: list[Decision] = []  # several, for stacked systems

    def choose(self, matrix: CheckedMatrix, positive_definite: bool, columns: int = 1) -> Choice:
        small = self._learner.policy.small(matrix, positive_definite)
        if small is not None:
            return small
        context = context_of(matrix, positive_definite, columns)
        try:
            decision = self._learner.decide(context, self._may_explore)
        except MemoryFileError as error:
            warnings.warn(f"what was learned is not at hand: {error}", stacklevel=2)
            return self._learner.policy.choose_for(context)
        self._decisions.append(decision)
        return Choice(decision.formats, decision.reason, partial(self._learn, decision))

    def _learn(self, decision: Decision, attempts: tuple[Attempt, ...], seconds: float) -> None:
        try:
            self._learner.learn(decision, attempts, seconds)
        except MemoryFileError as error:  # the answer is more important than what it teaches
            warnings.warn(f"nothing was learned from a solve: {error}", stacklevel=2)

    def failed(self, attempts: tuple[Attempt, ...]) -> None:
        """The last solve failed: its time counts."""
        if self._decisions:
            self._learn(self._decisions[-1], attempts, sum(tried.seconds for tried in attempts))

    def end(self) -> None:
        """Release what explorations have reserved, if nothing came of them."""
        for decision in self._decisions:
            self._learner.release(decision)
