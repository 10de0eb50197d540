"""`Solver`: a front door that learns from its own solves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from numpy.typing import NDArray

from roundwise.algorithms import Outcome
from roundwise.backends import Backend
from roundwise.policies import Memory, NeighbourPolicy, OnlinePolicy, Ranking
from roundwise.policies.bandit import counted
from roundwise.policies.base import Learn
from roundwise.policies.device import DeviceLearner
from roundwise.policies.online import Decision
from roundwise.solver.factorization import Factorization
from roundwise.solver.front_door import factor_system, solve_system
from roundwise.solver.least_squares import lstsq
from roundwise.solver.patterns import KnownPatterns
from roundwise.solver.policy_argument import (
    DEFAULT,
    DEVICE_CONTEXT,
    default_policy,
    device_policy,
    parse_policy,
)
from roundwise.solver.prepare import Accuracy, Asked, Options
from roundwise.solver.signatures import Matrix, Stack, SystemOptions
from roundwise.solver.solution import LeastSquaresSolution, Solution, SolveFailed
from roundwise.solver.stacks import StackedFactorization, StackedSolution
from roundwise.solver.structures import Structure
from roundwise.tuning import PROBE_CONTEXT, DeployedPolicy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Solver:
    """Solves as `roundwise.solve` does, and learns where to start from how long it took.

    A Solver begins with the default policy, and soon goes by its own measured solves: first those
    of systems of the same shape, then those of similar systems. In a sequence of systems (Newton's
    method, time steps), after a solve whose first format failed, the next one starts in a higher
    format; lower formats are tried again from time to time. Systems so small that no format gains
    time are solved at once, and teach nothing. The pattern of a sparse matrix is analysed once for
    all matrices that have it; the last three patterns are kept. Threads may share a Solver.

    Learning costs no digits: every answer passes the same gate. Times of solves on a GPU are
    learned separately, relative to their prices, and are not kept in `memory`.

    Parameters
    ----------
    policy : str, path, Tuner or DeployedPolicy
        As for `roundwise.solve`. A Solver learns on top of the default policy, and of a `Tuner`
        that has trained a `NeighbourPolicy`. Every other policy decides as it was trained.
    learn : bool, optional
        False: `policy` decides, and nothing is measured or remembered. By default a Solver learns
        if its policy can be learned from.
    memory : path-like, optional
        A file on a local disk that keeps what was learned; several processes may share it. It is
        valid after every solve, even if the process is killed. Without a file, what was learned is
        lost with the Solver. The constructor refuses a foreign or damaged file with a
        `MemoryFileError`. A solve never waits for the file: while it is locked or read-only, or its
        disk is full, what solves teach stays in this process and is written later, with one
        `MemoryFileWarning`.
    explore : float
        The share of the time spent solving that trying other actions may cost at most.

    Examples
    --------
    >>> solver = rw.Solver()
    >>> solver.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0])
    array([0.09090909, 0.63636364])
    """

    def __init__(
        self,
        policy: Any = "default",
        *,
        learn: bool | None = None,
        memory: str | PathLike[str] | None = None,
        explore: float = 0.02,
    ) -> None:
        self._asker, self._policy = parse_policy(policy), policy
        prior = _prior(self._asker)
        if learn is None:
            learn = prior is not None
        if learn and prior is None:
            raise ValueError(
                f"policy = {policy!r} decides as it was trained; pass policy='default' to learn, "
                "or learn=False"
            )
        if memory is not None and not learn:
            raise ValueError("memory is of no use without learning; leave one of them out")
        self._device_learner = DeviceLearner()
        self._learner: OnlinePolicy | None = None
        self._patterns = KnownPatterns()
        if learn and prior is not None:
            self._learner = OnlinePolicy(prior, Memory(memory), explore)
            self._learner.space, self._learner.feature_count = prior.space, prior.feature_count
        elif not 0 <= explore < 1:
            raise ValueError(f"explore = {explore}; choose a share of the time, 0 <= explore < 1")

    @overload
    def solve(
        self, A: Matrix, b: Any, *, full_output: Literal[True], **options: Unpack[SystemOptions]
    ) -> Solution: ...
    @overload
    def solve(
        self, A: Stack, b: Any, *, full_output: Literal[True], **options: Unpack[SystemOptions]
    ) -> StackedSolution: ...
    @overload
    def solve(
        self, A: Any, b: Any, *, full_output: Literal[True], **options: Unpack[SystemOptions]
    ) -> Solution: ...
    @overload
    def solve(
        self,
        A: Any,
        b: NDArray[Any],
        *,
        full_output: Literal[False] = False,
        **options: Unpack[SystemOptions],
    ) -> NDArray[Any]: ...
    @overload
    def solve(
        self, A: Any, b: Any, *, full_output: bool = False, **options: Unpack[SystemOptions]
    ) -> Any: ...
    def solve(
        self,
        A: Any,
        b: Any,
        *,
        tol: float | None = None,
        full_output: bool = False,
        assume_a: Structure | None = None,
        accuracy: Accuracy = "backward",
        device: str | None = None,
        lower: bool = False,
        transposed: bool = False,
        memory: str | float | None = None,
    ) -> Any:
        """Solve ``A x = b``; see `roundwise.solve` for arguments, results and errors.

        A solve with ``accuracy="forward"`` starts as the policy says, and teaches nothing: its
        time is not comparable with the others'.

        Parameters
        ----------
        A, b, tol, full_output, assume_a, accuracy, device, lower, transposed, memory
            As for `roundwise.solve`.

        Returns
        -------
        x : array, shaped as b
            A `Solution` if `full_output`.

        Examples
        --------
        >>> solver = rw.Solver()
        >>> solver.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0])
        array([0.09090909, 0.63636364])
        """
        options = Options.checked(tol, assume_a, accuracy, lower, transposed, memory)
        given = A, b, full_output, device, self._patterns
        if self._learner is None or accuracy == "forward":
            return solve_system(Asked(self._asker, options), *given)
        lessons = _Lessons(self._learner, self._device_learner, may_explore=True)
        try:
            return solve_system(Asked(lessons, options), *given)
        except SolveFailed as failure:
            lessons.failed(failure.attempts)
            raise
        finally:
            lessons.end()

    @overload
    def lstsq(
        self,
        A: Any,
        b: Any,
        rcond: float | None = None,
        *,
        tol: float | None = None,
        full_output: Literal[True],
    ) -> LeastSquaresSolution: ...
    @overload
    def lstsq(
        self,
        A: Any,
        b: NDArray[Any],
        rcond: float | None = None,
        *,
        tol: float | None = None,
        full_output: Literal[False] = False,
    ) -> NDArray[Any]: ...
    @overload
    def lstsq(
        self,
        A: Any,
        b: Any,
        rcond: float | None = None,
        *,
        tol: float | None = None,
        full_output: bool = False,
    ) -> Any: ...
    def lstsq(
        self,
        A: Any,
        b: Any,
        rcond: float | None = None,
        *,
        tol: float | None = None,
        full_output: bool = False,
    ) -> Any:
        """Minimise ``||b - A x||_2``; see `roundwise.lstsq` for arguments, results and errors.

        The Solver's policy decides if it is the default one, or if it was made for least squares; a
        `Solver` learns nothing from least squares.

        Parameters
        ----------
        A, b, rcond, tol, full_output
            As for `roundwise.lstsq`.

        Returns
        -------
        x : array, (n,) or (n, k)
            A `LeastSquaresSolution` if `full_output`.

        Examples
        --------
        >>> rw.Solver().lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 2.0, 3.0]).round(6)
        array([1., 1.])
        """
        return lstsq(A, b, rcond, tol=tol, policy=self._policy, full_output=full_output)

    def factor(
        self,
        A: Any,
        *,
        tol: float | None = None,
        assume_a: Structure | None = None,
        columns: int = 1,
        accuracy: Accuracy = "backward",
        device: str | None = None,
        lower: bool = False,
        memory: str | float | None = None,
    ) -> Factorization | StackedFactorization:
        """Factorize A once, to solve with many right-hand sides; see `roundwise.factor`.

        The Solver learns from the first solve, unless that asks for full accuracy. It never
        explores here, because the factors will be used again. For the next matrix with the same
        pattern, call `Factorization.refactor`.

        Parameters
        ----------
        A, tol, assume_a, columns, accuracy, device, lower, memory
            As for `roundwise.factor`.

        Returns
        -------
        Factorization

        Examples
        --------
        >>> F = rw.Solver().factor([[4.0, 1.0], [1.0, 3.0]])
        >>> F.solve([1.0, 2.0])
        array([0.09090909, 0.63636364])
        """
        options = Options.checked(tol, assume_a, accuracy, lower, memory=memory)
        asker: Any = self._asker
        if self._learner is not None and accuracy != "forward":
            asker = _Lessons(self._learner, self._device_learner, may_explore=False)
        return factor_system(Asked(asker, options), A, columns, device)

    def summary(self) -> str:
        """What was learned, as a table: relative times and solves, by system and first action.

        Examples
        --------
        >>> text = rw.Solver().summary()
        """
        return "This Solver does not learn." if self._learner is None else self._learner.summary()

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of `summary`."""
        from roundwise.notebook.cards import solver_card

        return solver_card(repr(self), None if self._learner is None else self._learner.learned())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what was learned: relative times by system and first action.

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
        >>> solver = rw.Solver()
        >>> x = solver.solve(np.eye(700) + 0.01, np.ones(700))
        >>> ax = solver.plot()
        """
        from roundwise.notebook.cards import plot_learned

        if self._learner is None:
            raise ValueError("this Solver does not learn; make one with learn=True to plot it")
        learned = self._learner.learned()
        if not learned.rows:
            raise ValueError("this Solver has learned nothing yet; solve with it, then plot")
        return plot_learned(learned, ax)

    def __repr__(self) -> str:
        if self._learner is None:
            return f"Solver({self._asker!r}, learn=False)"
        account, memory = self._learner.account, self._learner.memory.path
        solves = counted(account.solves, "solve")
        if memory is None:
            return f"Solver({solves}, {account.in_words})"
        return (
            f"Solver({self._learner.solves_remembered} solves remembered in {str(memory)!r}; "
            f"{solves} here, {account.in_words})"
        )


def _prior(asker: Any) -> NeighbourPolicy | None:
    """The policy that a Solver can start from, if it is of that kind."""
    if asker is DEFAULT:
        return default_policy()
    deployed = getattr(asker, "deployed", None)
    policy = getattr(deployed, "policy", None)
    return policy if isinstance(policy, NeighbourPolicy) else None


class _Lessons:
    """The policy of one call of a Solver: decides, and passes the outcome on to what learns."""

    looks_for_structure = True

    def __init__(self, learner: OnlinePolicy, device: DeviceLearner, may_explore: bool) -> None:
        self._learner, self._device, self._may_explore = learner, device, may_explore
        self.express_below = learner.prior.express_below
        self._decisions: list[Decision] = []  # several, for stacked systems

    def on(self, backend: Backend) -> DeployedPolicy:
        if backend.on_host:
            return _Learning(
                self._learner,
                PROBE_CONTEXT,
                decisions=self._decisions,
                may_explore=self._may_explore,
            )
        return DeployedPolicy(device_policy(backend, self._device), DEVICE_CONTEXT)

    def failed(self, attempts: Sequence[Outcome]) -> None:
        """Learn from a solve that failed: its time counts, too."""
        if self._decisions:
            seconds = sum(attempt.seconds or 0.0 for attempt in attempts)
            self._learner.learn(self._decisions[-1], attempts, seconds)

    def end(self) -> None:
        """Release the time that explorations have reserved and not used."""
        for decision in self._decisions:
            self._learner.release(decision)


@dataclass(frozen=True)
class _Learning(DeployedPolicy):
    """An online policy that explores, within its budget, and learns from the solve."""

    decisions: list[Decision] = field(default_factory=list)
    may_explore: bool = False

    def ranked(
        self, features: Mapping[str, float], allowed: Collection[int]
    ) -> tuple[Ranking, Learn | None]:
        learner = self.policy
        assert isinstance(learner, OnlinePolicy)
        profile = learner.state(self.context.vector(features))
        decision = learner.decide(profile, self.may_explore, allowed)
        self.decisions.append(decision)
        return decision.ranking, partial(learner.learn, decision)
