"""Which policy gives away least? Regret of all policies under the paper's reward and under cost.

Trains every policy on 100 systems of each of the paper's data sets (dense, sparse, PDE) with ten
seeds, and measures on 100 held-out systems the mean reward given away against the best action of
each system, with bootstrap intervals ("bins in hindsight" bounds what the paper's 10 x 10 bins can
tell at all). Outcomes are kept in ``out/``: the first run solves
everything (minutes), later ones replay.

    python -m roundwise_studies.compare_policies    # make compare
"""

from __future__ import annotations

import argparse
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise as rw
from roundwise.actions import ActionSpace, monotone_space
from roundwise.algorithms.base import PAPER_FORMATS
from roundwise.commands.outputs import format_table
from roundwise.costs import GENERIC_AVX512_CPU, H200_LIKE
from roundwise.discretizer import FeatureDiscretizer
from roundwise.outcomes import OutcomeTable, OutcomeView, fill, progress_bar
from roundwise.policies import (
    Escalation,
    FixedAction,
    LinearUCB,
    Policy,
    RegressionPolicy,
    TabularQ,
    TheoryRule,
    ThompsonSampling,
)
from roundwise.rewards import PAPER_W1, PAPER_W2, CostReward, ProblemFacts, Reward, StrictTarget
from roundwise.tuning import PAPER_CONTEXT, train, view_contexts, view_rewards
from roundwise_studies.datasets import DATA_SETS
from roundwise_studies.evaluation import best_fixed_action, cost_matrix, met_matrix, regret_table
from roundwise_studies.simulated import EXPERIMENTS

Floats = NDArray[np.float64]
Choices = NDArray[np.intp]
Halves = tuple[Floats, Floats]

TAU = 1e-6
EPISODES = 100


def rewards_for(name: str) -> dict[str, Reward]:
    iterations, target = EXPERIMENTS[name].lambda_iter, StrictTarget(TAU)
    return {
        "paper W1": replace(PAPER_W1, lambda_iter=iterations),
        "paper W2": replace(PAPER_W2, lambda_iter=iterations),
        "cost H200": CostReward(H200_LIKE, target),
        "cost CPU": CostReward(GENERIC_AVX512_CPU, target),
    }


def policies(fixed: int) -> dict[str, Policy]:
    return {
        "tabular 1/N": TabularQ(alpha="1/N"),
        "tabular 1/N, nearest": TabularQ(alpha="1/N", generalise="nearest"),
        "tabular 1/N, monotone": TabularQ(alpha="1/N", generalise="monotone"),
        "linear UCB": LinearUCB(),
        "Thompson": ThompsonSampling(),
        "regression (boosting)": RegressionPolicy(),
        "regression (MLP)": RegressionPolicy(perceptron()),
        "theory rule": TheoryRule(),
        "best fixed in training": FixedAction(fixed),
    }


def perceptron() -> Any:
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(hidden_layer_sizes=(32, 32), max_iter=300, random_state=0)


def escalation_regret(outcomes: OutcomeView, reward: CostReward, rewards: Floats) -> float:
    """Mean regret of `Escalation`, which pays for every rung up to the first that succeeds."""
    space = ActionSpace(outcomes.stages, outcomes.actions)
    policy = Escalation()
    policy.start(view_contexts(outcomes, PAPER_CONTEXT), space)
    rows = [outcomes.row(i) for i in range(outcomes.shape[0])]
    facts = [ProblemFacts.from_stored(problem, np.inf) for problem in outcomes.problems]
    costs, met = cost_matrix(reward.cost, rows), met_matrix(reward.target, rows, facts, space)
    total = 0.0
    for i, state in enumerate(policy.encode(view_contexts(outcomes, PAPER_CONTEXT))):
        spent = 0.0
        for action in policy.ladder(state):
            spent += costs[i, action]
            if met[i, action]:
                break
        total += rewards[i].max() - np.log2(costs[i, space.safe] / spent)
    return total / len(rows)


def chosen_by(
    policy: Policy,
    space: ActionSpace,
    columns: list[int],
    contexts: Halves,
    rewards: Floats,
    seed: int,
) -> Choices:
    """Test choices, as columns of the whole space, after training on some of its columns."""
    rng = np.random.default_rng(seed)
    train(policy, contexts[0], rewards[:, columns], space, EPISODES, rng)
    return np.array(columns)[policy.predict(contexts[1])]


def hindsight(contexts: Halves, rewards: Floats) -> Choices:
    """The best action of each of the paper's bins, chosen with the test rewards in view.

    No policy that sees only these bins can do better, however it learns.
    """
    states = FeatureDiscretizer(10).fit(contexts[0]).transform(contexts[1])
    best = {state: int(rewards[states == state].mean(axis=0).argmax()) for state in set(states)}
    return np.array([best[state] for state in states])


def outcomes(name: str, folder: Path, jobs: int, space: ActionSpace) -> list[OutcomeView]:
    algorithm = rw.GmresIR.paper(TAU)
    data = DATA_SETS[name](100, 100, seed=0)
    table = OutcomeTable(folder / f"{name}.sqlite")
    bar = progress_bar(f"{name} outcomes")
    fill(table, algorithm, data.train + data.test, space, jobs=jobs, progress=bar)
    known = {problem.fingerprint for problem in data.train}
    # Poisson's problem has nothing random but its size: some test systems are training systems.
    held_out = [problem for problem in data.test if problem.fingerprint not in known]
    return [table.view(algorithm, half, space) for half in (data.train, held_out)]


def compare(name: str, folder: Path, jobs: int, seeds: int) -> None:
    space = monotone_space(rw.GmresIR.stages, PAPER_FORMATS)
    top = space.last(25)
    every, highest = list(range(len(space))), [space.index(action) for action in top]
    views = outcomes(name, folder, jobs, space)
    for label, reward in rewards_for(name).items():
        first, second = (view_contexts(view, PAPER_CONTEXT) for view in views)
        contexts = first, second
        learn, test = (view_rewards(view, reward, space) for view in views)
        choices: dict[str, Choices] = {
            "the paper's tabular": np.array(
                [chosen_by(TabularQ(), top, highest, contexts, learn, s) for s in range(seeds)]
            )
        }
        for policy_name, policy in policies(best_fixed_action(learn)).items():
            runs = seeds if policy.learns else 1
            runs = min(runs, 3) if isinstance(policy, RegressionPolicy) else runs  # slow to fit
            choices[policy_name] = np.array(
                [chosen_by(policy, space, every, contexts, learn, s) for s in range(runs)]
            )
        choices["bins in hindsight"] = hindsight(contexts, test)
        table = regret_table(test, choices, space.safe, np.random.default_rng(0))
        print(f"\n{name}, {label}: mean regret on {table.count} held-out systems\n")
        print(format_table(table.to_rows()), flush=True)
        if isinstance(reward, CostReward):
            regret = escalation_regret(views[1], reward, test)
            print(f"\nEscalation up its ladder, every rung paid for: regret {regret:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"{', '.join(DATA_SETS)}; default: all"
    )
    parser.add_argument("--folder", type=Path, default=Path("out"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    if unknown := set(arguments.sets) - set(DATA_SETS):
        parser.error(
            f"unknown set {', '.join(sorted(unknown))}; choose from {', '.join(DATA_SETS)}"
        )
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "Stochastic Optimizer")  # the perceptron may stop early
    for name in arguments.sets or DATA_SETS:
        compare(name, arguments.folder, arguments.jobs, arguments.seeds)


if __name__ == "__main__":
    main()
