"""``roundwise train``: from systems to a saved policy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from roundwise.algorithms import DeploymentRule, GmresIR
from roundwise.commands.endings import data_errors, echo_json, interruptible
from roundwise.commands.options import (
    FILE,
    arithmetic_option,
    bad_value,
    checked_output,
    choice_option,
    count_option,
    default_formats,
    formats_option,
    jobs_option,
    json_option,
    seed_option,
    table_option,
    tau_option,
)
from roundwise.commands.systems import (
    KAPPAS,
    Systems,
    check_kappa,
    load_systems,
    systems_argument,
)
from roundwise.evaluation import best_fixed_action
from roundwise.experiments.simulated import EXPERIMENTS
from roundwise.experiments.simulated.experiment import WEIGHTS
from roundwise.features import KAPPA_FLOOR, NORM_FLOOR
from roundwise.formats import FloatFormat
from roundwise.outcomes import OutcomeTable, progress_bar
from roundwise.policies import LinearUCB, Policy, RegressionPolicy, TabularQ, ThompsonSampling
from roundwise.rewards import PROFILES, CostReward, PaperReward, Reward
from roundwise.tuning import Context, Tuner

LEARNERS: dict[str, Callable[[], Policy]] = {
    "tabular": TabularQ,
    "linear-ucb": LinearUCB,
    "thompson": ThompsonSampling,
    "regression": RegressionPolicy,
}


def json_name(ctx: click.Context, param: click.Parameter, path: Path) -> Path:
    if path.suffix != ".json":
        raise click.BadParameter(f"{path}; a policy is saved as JSON: choose a name in .json")
    checked_output(ctx, param, path)
    return path


@click.command("train")
@systems_argument
@click.option(
    "-o",
    "--out",
    type=FILE,
    required=True,
    metavar="POLICY.json",
    callback=json_name,
    help="File to write the policy to; an npz file stands beside it.",
)
@table_option
@count_option("--train", "How many systems of a data set.  [default: 100]")
@seed_option("Seed of the data set and of the exploration.")
@choice_option(
    "--policy",
    LEARNERS,
    "What learns: a model that generalises, or the paper's table (tabular).",
    default="thompson",
)
@choice_option(
    "--reward",
    ["cost", "paper"],
    "Modelled speedup at full accuracy, or Carson & Chen's reward.",
    default="cost",
)
@choice_option(
    "--profile",
    PROFILES,
    "The machine that prices operations, for --reward cost.  [default: generic-avx512-cpu]",
)
@choice_option(
    "--weights",
    WEIGHTS,
    "Accuracy first (W1) or precision too (W2), for --reward paper.  [default: W1]",
)
@choice_option(
    "--kappa",
    KAPPAS,
    "The condition number that the policy sees: by an SVD, or from an FP64 factorization.",
    default="exact",
)
@tau_option(
    "Tolerance of the inner GMRES; with --reward paper also stagnation ratio.", default=1e-6
)
@arithmetic_option("Round every operation, or what is stored.", default="operation")
@formats_option
@count_option("--episodes", "Passes over the systems in training.", default=100)
@jobs_option
@json_option()
def train_command(
    systems: Sequence[str],
    out: Path,
    table: Path | None,
    train: int | None,
    seed: int,
    policy: str,
    reward: str,
    profile: str | None,
    weights: str | None,
    kappa: str,
    tau: float,
    arithmetic: str,
    formats: list[FloatFormat] | None,
    episodes: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Train a policy: which systems need which precisions.

    The systems are one of the paper's data sets, or those of Matrix Market files.

    First every action is run once on every system, which takes nearly all of the time. These
    outcomes are kept in a table: after an interruption the same command goes on, and another
    --policy, --profile, --weights or --episodes solves nothing again. Then the policy learns by
    replay.

    With --reward cost runs end, and are judged, as in `roundwise solve`; with --reward paper as
    in Carson & Chen, whose policy is tabular. Each of the two has runs of its own.

    \b
    Examples
      roundwise train dense -o policy.json --train 30 --jobs -1
      roundwise train matrices/*.mtx -o mine.json --kappa estimate
      roundwise train pde -o pde.json --reward paper --policy tabular --tau 1e-8
    """
    formats = formats or default_formats(arithmetic)
    goal = chosen_reward(reward, profile, weights, systems, formats)
    with bad_value("--tau"):
        algorithm = (
            GmresIR.paper(tau)
            if reward == "paper"
            else GmresIR(tolerance=tau, stop=DeploymentRule())
        )
    start = time.perf_counter()
    loaded = load_systems(systems, "train", train, seed)
    context = Context((KAPPAS[kappa], "norm_inf"), (KAPPA_FLOOR, NORM_FLOOR))
    check_kappa(context, loaded.members)
    outcomes = OutcomeTable(out.with_suffix(".sqlite") if table is None else table)
    before = len(outcomes)

    def fitted() -> Tuner:
        return Tuner(
            algorithm,
            formats,
            policy=LEARNERS[policy](),
            reward=goal,
            context=context,
            arithmetic=arithmetic,
            episodes=episodes,
            seed=seed,
            table=outcomes,
            jobs=jobs,
            progress=progress_bar(loaded.name),
        ).fit(loaded.members)

    with data_errors():
        tuner = interruptible(fitted, outcomes)
    tuner.save(out)
    facts = {
        "policy": str(out),
        "kind": policy,
        "table": str(outcomes.path),
        "outcomes_computed": len(outcomes) - before,
        "outcomes_in_table": len(outcomes),
        **training_facts(tuner, loaded),
        "seconds": time.perf_counter() - start,
    }
    if as_json:
        echo_json(facts)
    else:
        click.echo("\n".join(training_text(facts, str(loaded))))


def chosen_reward(
    kind: str,
    profile: str | None,
    weights: str | None,
    systems: Sequence[str],
    formats: Sequence[FloatFormat],
) -> Reward:
    if kind == "cost":
        if weights is not None:
            raise click.UsageError("--weights belongs to --reward paper; leave one of them out")
        machine = PROFILES[profile or "generic-avx512-cpu"]
        if lacking := [fmt.name for fmt in formats if fmt.name not in machine.rates]:
            raise click.UsageError(
                f"{machine.name} has no {', '.join(lacking)}; choose another --profile or --formats"
            )
        return CostReward(machine)
    if profile is not None:
        raise click.UsageError("--profile belongs to --reward cost; leave one of them out")
    w1, w2 = WEIGHTS[weights or "W1"]
    # The paper weighs iterations less for its sparse and PDE systems than for dense ones.
    experiment = EXPERIMENTS.get(systems[0], EXPERIMENTS["dense"])
    return PaperReward(w1=w1, w2=w2, lambda_iter=experiment.lambda_iter)


def training_facts(tuner: Tuner, systems: Systems) -> dict[str, Any]:
    policy, rewards = tuner.policy_, tuner.rewards_
    chosen = policy.predict(tuner.contexts_)
    names = tuner.space_.names
    seen = np.count_nonzero(policy.counts.any(axis=1)) if isinstance(policy, TabularQ) else None
    return {
        "systems": {"name": systems.name, "count": len(systems.members)},
        "arithmetic": tuner.arithmetic,
        "episodes": tuner.episodes,
        "seed": tuner.seed,
        "states": None if seen is None else int(seen),
        "coverage": policy.coverage,
        "reward": {
            "policy": float(rewards[np.arange(len(rewards)), chosen].mean()),
            "oracle": float(rewards.max(axis=1).mean()),
            "best_fixed": float(rewards[:, best_fixed_action(rewards)].mean()),
            "all_fp64": float(rewards[:, tuner.space_.safe].mean()),
        },
        "actions": dict(Counter(names[i] for i in chosen).most_common()),
    }


def training_text(facts: dict[str, Any], systems: str) -> Iterator[str]:
    yield f"{facts['policy']}: {facts['kind']} policy, learned from {systems}"
    yield (
        f"  outcomes  {facts['outcomes_computed']} computed, {facts['outcomes_in_table']} in "
        f"{facts['table']}"
    )
    yield f"  tried     {100 * facts['coverage']:.0f} % of the actions"
    if facts["states"] is not None:
        yield f"  states    {facts['states']} seen"
    reward = facts["reward"]
    yield (
        f"  reward    {reward['policy']:.3g} (oracle {reward['oracle']:.3g}, best fixed action "
        f"{reward['best_fixed']:.3g}, all-FP64 {reward['all_fp64']:.3g})"
    )
    if reward["oracle"] <= reward["all_fp64"]:
        yield "            no action beats all-FP64 on any of these systems, so none was learned"
    for lead, (name, count) in zip(
        ["  chosen  ", *[" " * 10] * len(facts["actions"])], facts["actions"].items(), strict=False
    ):
        yield f"{lead}{count:>4} x {name}"
    yield f"  time      {facts['seconds']:.1f} s"
