"""`Tuner`: scikit-learn style ``fit(problems)``, then ``predict(problem)``."""

from __future__ import annotations

import contextlib
import copy
import json
import platform
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from roundwise._files import one_line
from roundwise.actions import Action, ActionLike, ActionSpace
from roundwise.algorithms import Algorithm, Outcome
from roundwise.exceptions import UnknownNameError
from roundwise.features.definitions import compute_with_factors
from roundwise.formats import FloatFormat
from roundwise.outcomes import OutcomeTable, OutcomeView, fill
from roundwise.outcomes.records import StoredArithmetic, algorithm_json
from roundwise.policies import NeighbourPolicy, Policy, TabularQ, load_policy
from roundwise.problems import Problem
from roundwise.problems.given import ProblemLike, as_problem
from roundwise.rewards import ClimbReward, ProblemFacts, Reward, reward_from_dict
from roundwise.rewards.paper import PAPER_W1
from roundwise.tuning.context import (
    PAPER_CONTEXT,
    PROBE_CONTEXT,
    Context,
    DeployedPolicy,
    kappa_for,
)
from roundwise.tuning.files import TunerFileError, read_tuner, saved_algorithm, write_tuner
from roundwise.tuning.training import TrainingCurves, train, view_contexts, view_rewards

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What the constructors of saved objects raise when a file gives them other values than `save` did.
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


class Tuner:
    """Learns which formats an algorithm needs, from outcomes on training problems.

    `fit` runs every action once on every problem (or takes what a table holds already), turns the
    outcomes into rewards, and lets the policy learn by replay. Changing reward, policy or seed and
    fitting again on the same table solves nothing again.

    Parameters
    ----------
    algorithm : Algorithm
        What is run. It sets the defaults of the other arguments.
    formats : sequence of formats, optional
        The formats to choose from: ``algorithm.action_space(formats, problems)`` are the actions.
    space : ActionSpace, optional
        The actions themselves, in place of `formats`.
    policy : Policy, optional
        What learns. By default a `NeighbourPolicy` for `VerifiedSolve`, the algorithm of
        `roundwise.solve`, and for the others the paper's `TabularQ`.
    reward : Reward, optional
        What it learns to maximise. By default `ClimbReward` for `VerifiedSolve`, and for the others
        the paper's, `PaperReward` with W1.
    context : Context, optional
        The features that the policy sees. By default the cheap ones, `PROBE_CONTEXT`, for
        `VerifiedSolve`, and for the others the paper's `PAPER_CONTEXT`.
    arithmetic : str, optional
        The arithmetic model of the runs. By default ``"native"`` for `VerifiedSolve`, and
        ``"operation"`` for the others.
    episodes : int
        Passes over the problems in training.
    seed : int
        The seed of the exploration.
    table : OutcomeTable or path, optional
        The file that keeps the outcomes; a temporary one if not given.
    jobs, client, progress : optional
        As in `roundwise.outcomes.fill`.

    Attributes
    ----------
    policy_ : Policy
        The trained policy.
    reward_, context_, arithmetic_
        What was given for these, or the default.
    space_ : ActionSpace
        The actions that it chooses from.
    curves_ : TrainingCurves
        Reward, error and exploration by episode.
    contexts_, rewards_ : arrays (N, d) and (N, A)
        Contexts of the N training problems, and the rewards of the A actions on each. A saved file
        does not keep them.
    provenance_ : dict
        Versions, machine, time and settings of the training.

    Examples
    --------
    >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
    >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
    >>> len(tuner.predict(problems[0]))  # a format for each stage
    4
    """

    def __init__(
        self,
        algorithm: Algorithm,
        formats: Sequence[str | FloatFormat] | None = None,
        *,
        space: ActionSpace | None = None,
        policy: Policy | None = None,
        reward: Reward | None = None,
        context: Context | None = None,
        arithmetic: str | None = None,
        episodes: int = 100,
        seed: int = 0,
        table: OutcomeTable | str | PathLike[str] | None = None,
        jobs: int | None = None,
        client: Any = None,
        progress: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.formats = formats
        self.space = space
        self.policy = policy
        self.reward = reward
        self.context = context
        self.arithmetic = arithmetic
        self.episodes = episodes
        self.seed = seed
        self.table = table
        self.jobs = jobs
        self.client = client
        self.progress = progress

    def __repr__(self) -> str:
        facts = [type(one).__name__ for one in (self.algorithm, self._policy(), self._reward())]
        if hasattr(self, "policy_"):
            trained = len(self.provenance_["problems"])
            facts.append(f"{len(self.space_)} actions, trained on {trained} problems")
        else:
            facts.append("not fitted")
        return f"Tuner({', '.join(facts)})"

    def fit(self, problems: Iterable[ProblemLike]) -> Tuner:
        """Learn from these problems.

        Parameters
        ----------
        problems : iterable of Problem, (A, b) pairs or matrices
            A matrix without b gets a known solution, with entries of size 1 to 2. Rewards that
            look at the forward error, as the paper's does, need that: of a pair ``(A, b)`` the
            solution is not known.

        Returns
        -------
        Tuner
            Itself.

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> tuner.rewards_.shape  # problems by actions
        (3, 5)
        >>> tuner.fit([problem.A for problem in problems])
        Tuner(GmresIR, TabularQ, PaperReward, 5 actions, trained on 3 problems)
        """
        self._settle()
        given = [self._problem(one) for one in problems]
        if not given:
            raise ValueError("no training problems; pass at least one")
        space = self.space
        if space is None:
            space = self.algorithm.action_space(self.formats, given)
        with self._open_table() as table:
            fill(
                table,
                self.algorithm,
                given,
                space,
                arithmetic=self.arithmetic_,
                features=self._feature_names(),
                jobs=self.jobs,
                client=self.client,
                progress=self.progress,
            )
            view = table.view(self.algorithm, given, space, self.arithmetic_)
        return self.fit_view(view, space)

    def fit_view(self, view: OutcomeView, space: ActionSpace | None = None) -> Tuner:
        """Learn from outcomes that are at hand; see `OutcomeTable.view`.

        Parameters
        ----------
        view : OutcomeView
        space : ActionSpace, optional
            That of the view's actions if not given.

        Returns
        -------
        Tuner
            Itself.

        Examples
        --------
        >>> import tempfile
        >>> from roundwise.outcomes import OutcomeTable, fill
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> algorithm = rw.GmresIR.paper()
        >>> space = algorithm.action_space(["fp32", "fp64"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = OutcomeTable(f"{folder}/outcomes.sqlite")
        ...     done = fill(table, algorithm, problems, space)
        ...     view = table.view(algorithm, problems, space)
        >>> tuner = rw.Tuner(algorithm, space=space, episodes=10).fit_view(view)
        >>> tuner.rewards_.shape
        (3, 5)
        """
        self._settle()
        space = ActionSpace(view.stages, tuple(view.actions)) if space is None else space
        self.contexts_ = view_contexts(view, self.context_)
        self.rewards_ = view_rewards(view, self.reward_, space)
        self.policy_ = self._policy()
        self.space_ = space
        rng = np.random.default_rng(self.seed)
        self.curves_ = train(
            self.policy_, self.contexts_, self.rewards_, space, self.episodes, rng, view
        )
        self.provenance_: dict[str, Any] = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "roundwise": version("roundwise"),
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "arithmetic": view.arithmetic,
            "seed": self.seed,
            "episodes": self.episodes,
            "problems": [facts.fingerprint for facts in view.problems],
        }
        return self

    def predict(self, problem: ProblemLike) -> Action:
        """The action that the policy chooses for a problem; computes the features that it sees.

        Parameters
        ----------
        problem : Problem, (A, b) pair or matrix

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> tuner.predict(problems[0]) in tuner.space_
        True
        """
        return self.predict_action(self.features(problem))

    def predict_action(self, features: Mapping[str, SupportsFloat]) -> Action:
        """The action for features by name, as `compute_features` returns them.

        Parameters
        ----------
        features : mapping of str to float

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> tuner.predict_action(tuner.features(problems[0])) == tuner.predict(problems[0])
        True
        """
        self._check_fitted()
        context = self.context_.vector(features)
        return self.space_[int(self.policy_.predict(context[None])[0])]

    def features(self, problem: ProblemLike) -> dict[str, SupportsFloat]:
        """The features of the context; those that need factors get an FP64 factorization.

        Parameters
        ----------
        problem : Problem, (A, b) pair or matrix

        Returns
        -------
        dict of str to FeatureValue

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> sorted(tuner.features(problems[0]))
        ['kappa_exact', 'norm_inf']
        """
        self._check_fitted()
        given, names = self._problem(problem), self.context_.features
        return dict(compute_with_factors(given, names, self.arithmetic_))

    def partial_fit(
        self,
        problem: Problem,
        action: ActionLike,
        outcome: Outcome,
        baseline: Outcome | None = None,
    ) -> float:
        """Learn from one run; returns the reward.

        A reward that compares with all-FP64 (`CostReward`) needs that outcome as `baseline`.

        Parameters
        ----------
        problem : Problem
        action : str or sequence of formats
        outcome : Outcome
            What the action gave.
        baseline : Outcome, optional
            What all-FP64 gave.

        Returns
        -------
        float
            The reward.

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> outcome = rw.GmresIR.paper().run(problems[0], "fp32-fp64-fp64-fp64")
        >>> reward = tuner.partial_fit(problems[0], "fp32-fp64-fp64-fp64", outcome)
        >>> bool(np.isfinite(reward))
        True
        """
        self._check_fitted()
        index = self.space_.index(action)
        if outcome.action not in ("", self.space_.names[index]):
            raise ValueError(
                f"the outcome is that of {outcome.action}, the action {self.space_.names[index]}; "
                "pass the action that was run"
            )
        features = compute_with_factors(problem, self._feature_names(), self.arithmetic_)
        context = self.context_.vector(features)
        kappa = kappa_for(self.reward_, features)
        facts = ProblemFacts.from_problem(problem, kappa, baseline)
        reward = self.reward_(outcome, facts, self.space_[index])
        self.policy_.update(self.policy_.state(context), index, reward)
        return reward

    def save(self, path: str | PathLike[str]) -> None:
        """Write ``path`` (JSON) and, beside it, an npz file named after it with 12 more digits.

        A tuner that was saved at ``path`` before is replaced, with its npz file.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> import tempfile
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tuner.save(f"{folder}/tuner.json")
        ...     loaded = rw.Tuner.load(f"{folder}/tuner.json")
        >>> loaded.predict(problems[0]) == tuner.predict(problems[0])
        True
        """
        self._check_fitted()
        path = Path(path)
        if path.suffix != ".json":
            raise ValueError(f"{path.name}: a tuner is saved as JSON; choose a name in .json")
        content = {
            "algorithm": json.loads(algorithm_json(self.algorithm)),
            "arithmetic": self.arithmetic_,
            "context": self.context_.to_dict(),
            "reward": self.reward_.to_dict(),
            "policy": self.policy_.to_dict(),
            "curves": self.curves_.to_dict(),
            "provenance": self.provenance_,
        }
        write_tuner(path, content, self.policy_.arrays())

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        algorithm: Algorithm | None = None,
        rewards: Iterable[type[Reward]] = (),
        policies: Iterable[type[Policy]] = (),
    ) -> Tuner:
        """The tuner that `save` wrote.

        The file holds no code. If the algorithm, the reward or the policy is a class of your own,
        pass it here; the algorithm's settings are checked against the saved ones.

        Parameters
        ----------
        path : path
        algorithm : Algorithm, optional
            If it is your own.
        rewards, policies : iterables of type
            Classes of your own that the file may name.

        Examples
        --------
        >>> import tempfile
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tuner.save(f"{folder}/tuner.json")
        ...     loaded = rw.Tuner.load(f"{folder}/tuner.json")
        >>> loaded.space_ == tuner.space_
        True
        """
        path = Path(path)
        content, arrays = read_tuner(path)
        try:
            algorithm = saved_algorithm(content["algorithm"], algorithm)
            provenance = content["provenance"]
            tuner = cls(
                algorithm,
                reward=reward_from_dict(content["reward"], rewards),
                context=Context.from_dict(content["context"]),
                arithmetic=content["arithmetic"],
                episodes=provenance["episodes"],
                seed=provenance["seed"],
            )
            tuner._settle()
            tuner.policy_ = tuner.policy = load_policy(content["policy"], arrays, policies)
            tuner.space_ = tuner.space = tuner.policy_.space
            tuner.curves_ = TrainingCurves.from_dict(content["curves"])
            tuner.provenance_ = provenance
            StoredArithmetic.parse(content["arithmetic"])
            if tuner.policy_.feature_count != len(tuner.context_.features):
                raise ValueError("the policy was trained on another number of features")
            needed, seen = tuner.policy_.needs_context, tuner.context_.features
            if needed is not None and seen != needed:
                odd = ", ".join(sorted(set(needed) ^ set(seen))) or "their order"
                raise TunerFileError(
                    f"trained on other features than this Roundwise looks at ({odd}); train it "
                    "again with Tuner.fit, or use the version of Roundwise that saved it"
                )
        except TunerFileError as error:
            raise TunerFileError(f"{path}: {one_line(error)}") from None
        except UnknownNameError as error:
            raise TunerFileError(
                f"{path} is damaged or names a class of your own ({one_line(error)}); pass it to "
                "Tuner.load: algorithm=..., rewards=[...] or policies=[...]"
            ) from error
        except _DAMAGED as error:
            raise TunerFileError(
                f"{path} is damaged ({one_line(error)}); save the tuner again"
            ) from error
        if tuner.space_.stages != algorithm.stages:
            stages = one_line(tuner.space_.stages)
            raise TunerFileError(f"{path}: its actions are for stages {stages}")
        return tuner

    @property
    def deployed(self) -> DeployedPolicy:
        """The trained policy with the features that it sees: what `roundwise.solve` asks."""
        self._check_fitted()
        return DeployedPolicy(self.policy_, self.context_, self.arithmetic_, self.algorithm)

    def plot(self) -> Figure:
        """How training went: the mean reward and the mean regret of each episode.

        Below them, for a `TabularQ` of one or two features, are the maps of `TabularQ.plot`. A
        tuner that was loaded has no regret: files keep no rewards. Needs
        ``pip install "roundwise[plot]"``.

        Returns
        -------
        matplotlib Figure

        Examples
        --------
        >>> problems = [rw.problems.randsvd(10, 10.0**k, rng=k) for k in range(1, 4)]
        >>> tuner = rw.Tuner(rw.GmresIR.paper(), ["fp32", "fp64"], episodes=10).fit(problems)
        >>> figure = tuner.plot()
        """
        from roundwise.notebook.training import plot_training

        self._check_fitted()
        names = [
            name if floor is None else f"log10 {name}"
            for name, floor in zip(self.context_.features, self.context_.floors, strict=True)
        ]
        rewards, safe = getattr(self, "rewards_", None), self.space_.safe
        curves = self.curves_
        return plot_training(curves.reward, curves.epsilon, rewards, safe, self.policy_, names)

    def _repr_html_(self) -> str:
        """HTML for a notebook: the settings and, once fitted, how the reward grew."""
        from roundwise.notebook.cards import facts_card

        facts = {
            "algorithm": repr(self.algorithm),
            "arithmetic": self._arithmetic(),
            "features": ", ".join(self._context().features),
            "reward": repr(self._reward()),
            "policy": type(self._policy()).__name__,
        }
        if not hasattr(self, "policy_"):
            return facts_card("Tuner: not fitted yet", facts)
        facts |= {
            "actions": f"{len(self.space_)}: {', '.join(self.space_.names)}",
            "trained": f"on {len(self.provenance_['problems'])} problems, "
            f"{self.provenance_['created']}",
        }
        return facts_card("Tuner: fitted", facts, self.curves_.reward.tolist())

    def _problem(self, given: ProblemLike) -> Problem:
        return as_problem(given, self.algorithm.problem_type)

    def _settle(self) -> None:
        """Check what was given, and choose what was not."""
        if not isinstance(self.algorithm, Algorithm):
            raise TypeError(
                f"algorithm = {self.algorithm!r}; pass an Algorithm, GmresIR.paper() for example"
            )
        self.reward_, self.context_ = self._reward(), self._context()
        self.arithmetic_ = self._arithmetic()

    def _context(self) -> Context:
        if self.context is not None:
            return self.context
        return PROBE_CONTEXT if self.algorithm.has_methods else PAPER_CONTEXT

    def _arithmetic(self) -> str:
        return self.algorithm.arithmetic if self.arithmetic is None else self.arithmetic

    def _policy(self) -> Policy:
        if self.policy is not None:
            return copy.deepcopy(self.policy)
        return NeighbourPolicy() if self.algorithm.has_methods else TabularQ()

    def _feature_names(self) -> tuple[str, ...]:
        """The context's features, and what the reward or the policy needs besides."""
        names = (*self.context_.features, *self._policy().study_features)
        if self.reward_.needs_kappa and not {"kappa_exact", "kappa_est"} & set(names):
            names = (*names, "kappa_exact")
        return names

    def _reward(self) -> Reward:
        if self.reward is not None:
            return self.reward
        return ClimbReward() if self.algorithm.has_methods else PAPER_W1

    @contextlib.contextmanager
    def _open_table(self) -> Iterator[OutcomeTable]:
        if self.table is None:
            with tempfile.TemporaryDirectory() as folder:
                yield OutcomeTable(Path(folder) / "outcomes.sqlite")
        elif isinstance(self.table, OutcomeTable):
            yield self.table
        else:
            yield OutcomeTable(self.table)

    def _check_fitted(self) -> None:
        if not hasattr(self, "policy_"):
            raise ValueError("this tuner has learned nothing yet; call fit or Tuner.load first")
