"""``roundwise train``: from systems to a saved policy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from roundwise.algorithms import Algorithm, DeploymentRule, GmresIR, VerifiedSolve
from roundwise.backends import NativeBackend
from roundwise.commands.outputs import data_errors, echo, keep, writable_file
from roundwise.commands.solve import check_kappa
from roundwise.costs import PROFILES
from roundwise.discretizer import FeatureDiscretizer
from roundwise.features import KAPPA_FLOOR, NORM_FLOOR
from roundwise.formats import FloatFormat
from roundwise.outcomes import OutcomeTable, progress_bar
from roundwise.policies import (
    LinearUCB,
    NeighbourPolicy,
    Policy,
    RegressionPolicy,
    TabularQ,
    ThompsonSampling,
)
from roundwise.policies.profile import fitting_actions
from roundwise.rewards import PAPER_W1, PAPER_W2, CostReward, Reward
from roundwise.tuning import Context, Tuner
from roundwise_studies.commands import options
from roundwise_studies.commands.outputs import interruptible
from roundwise_studies.commands.systems import (
    KAPPAS,
    Systems,
    check_kinds,
    files_among,
    load_systems,
    system_sizes_option,
    systems_argument,
)
from roundwise_studies.evaluation import best_fixed_action

LEARNERS: dict[str, dict[str, Callable[[], Policy]]] = {
    "gmres-ir": {
        "thompson": ThompsonSampling,
        "linear-ucb": LinearUCB,
        "regression": RegressionPolicy,
        "tabular": TabularQ,
    },
    "verified-solve": {
        "neighbours": NeighbourPolicy,
        "thompson": ThompsonSampling,
        "linear-ucb": LinearUCB,
        "regression": lambda: RegressionPolicy(kappa_feature=None),
        "tabular": lambda: TabularQ(FeatureDiscretizer(4), alpha="1/N", generalise="nearest"),
    },
}
"""The policies that can be trained for each algorithm, the default first. Nine cheap features are
too many for the paper's ten bins each, and none of them is a condition number."""

WEIGHTS = {"W1": PAPER_W1, "W2": PAPER_W2}
LAMBDA_ITER = {"sparse": 0.5, "pde": 0.5}
"""Weights of the iterations in the paper's reward, by data set; else 1."""


def json_name(path: Path) -> Path:
    if path.suffix != ".json":
        raise ValueError(f"{path}; a policy is saved as JSON: choose a name in .json")
    return writable_file(path)


@click.command("train")
@systems_argument
@options.output(
    "File to write the policy to; an npz file stands beside it.",
    "POLICY.json",
    required=True,
    check=json_name,
)
@options.table("Where outcomes are kept.  [default: POLICY.sqlite]")
@options.count("--train", "How many systems of a data set.  [default: 100]")
@system_sizes_option
@options.seed("Seed of the data set and of the exploration.")
@options.choice(
    "--algorithm",
    LEARNERS,
    "What the policy is for: the paper's, or what `roundwise solve` runs (verified-solve).",
    default="gmres-ir",
)
@options.choice(
    "--policy",
    LEARNERS["verified-solve"],
    "What learns: similar systems and prices of this machine (neighbours, for verified-solve), a "
    "model, or the paper's table (tabular).  [default: thompson; neighbours for verified-solve]",
)
@options.choice(
    "--reward",
    ["cost", "paper"],
    "Modelled speedup at full accuracy, or Carson & Chen's reward.",
    default="cost",
)
@options.choice(
    "--profile",
    PROFILES,
    "The machine that prices operations, for --reward cost.  [default: generic-avx512-cpu]",
)
@options.choice(
    "--weights",
    WEIGHTS,
    "Accuracy first (W1) or precision too (W2), for --reward paper.  [default: W1]",
)
@options.choice(
    "--kappa",
    KAPPAS,
    "The condition number that the policy sees: by an SVD, or from an FP64 factorization.",
    default="exact",
)
@options.tau(
    "Tolerance of the inner GMRES; with --reward paper also the stagnation ratio.", default=1e-6
)
@options.arithmetic(
    "Round every operation (operation), round results when stored (storage), or run and time "
    "on the hardware (native, cuda).",
    default="operation",
)
@options.formats
@options.count("--episodes", "Passes over the systems in training.", default=100)
@options.jobs
@options.as_json()
def train_command(
    systems: Sequence[str],
    out: Path,
    table: Path | None,
    train: int | None,
    sizes: tuple[int, int] | None,
    seed: int,
    algorithm: str,
    policy: str | None,
    formats: list[FloatFormat] | None,
    episodes: int,
    as_json: bool,
    **for_gmres_ir: Any,
) -> None:
    """Train a policy: which systems need which precisions.

    The systems are one of the paper's data sets, or those of Matrix Market files.

    First every action is run once on every system, which takes nearly all of the time. These
    outcomes are kept in a table: after an interruption the same command goes on, and another
    --policy, --profile, --weights or --episodes solves nothing again. Then the policy learns by
    replay.

    With --reward cost runs end, and are judged, as in `roundwise solve`; with --reward paper as
    in Carson & Chen, whose policy is tabular. Each of the two has runs of its own.

    With --algorithm verified-solve, the policy is for `roundwise solve --policy` and
    `roundwise.solve(A, b, policy=...)` on this machine: it sees cheap features, runs are native
    and timed, and a choice is rewarded by the time of the whole solve that it starts. --formats
    are then those of the factorization. Low precision pays for large systems only: see --sizes.

    \b
    Examples
      roundwise train dense -o policy.json --train 30 --jobs -1
      roundwise train matrices/*.mtx -o mine.json --kappa estimate
      roundwise train pde -o pde.json --reward paper --policy tabular --tau 1e-8
      roundwise train dense -o mine.json --algorithm verified-solve --train 40 --sizes 500 2000
    """
    table = out.with_suffix(".sqlite") if table is None else table
    keep(files_among(systems), out=out, table=table)
    learners = LEARNERS[algorithm]
    policy = next(iter(learners)) if policy is None else policy
    if policy not in learners:
        raise click.UsageError(
            f"{policy} is a policy for verified-solve; add --algorithm verified-solve, or choose "
            f"--policy {', '.join(learners)}"
        )
    settings: dict[str, Any]
    if algorithm == "verified-solve":
        options.refuse_given(
            for_gmres_ir,
            "for gmres-ir; verified-solve runs natively, one run at a time, sees cheap features "
            "and is rewarded by measured time: leave it out",
        )
        settings = {"algorithm": VerifiedSolve(), "formats": formats}
    else:
        settings = gmres_ir_settings(systems, formats, **for_gmres_ir)
    start = time.perf_counter()
    loaded = load_systems(systems, "train", train, seed, sizes)
    if algorithm == "verified-solve":
        check_kinds(loaded.members)
        check_formats(settings["algorithm"], formats, loaded)
    else:
        check_kappa(settings["context"], loaded.members)
    outcomes = OutcomeTable(table)
    before = len(outcomes)

    def fitted() -> Tuner:
        return Tuner(
            **settings,
            policy=learners[policy](),
            episodes=episodes,
            seed=seed,
            table=outcomes,
            progress=progress_bar(loaded.name),
        ).fit(loaded.members)

    with data_errors():
        tuner = interruptible(fitted, outcomes)
    tuner.save(out)
    facts = {
        "policy": str(out),
        "kind": policy,
        "algorithm": type(tuner.algorithm).__name__,
        "table": str(outcomes.path),
        "outcomes_computed": len(outcomes) - before,
        "outcomes_in_table": len(outcomes),
        **training_facts(tuner, loaded),
        "seconds": time.perf_counter() - start,
    }
    echo(facts, training_text(facts, str(loaded)), as_json)


def gmres_ir_settings(
    systems: Sequence[str],
    formats: list[FloatFormat] | None,
    *,
    reward: str,
    profile: str | None,
    weights: str | None,
    kappa: str,
    tau: float,
    arithmetic: str,
    jobs: int | None,
) -> dict[str, Any]:
    """What a `Tuner` for GMRES-IR is made with, from the options that are for GMRES-IR alone."""
    formats = formats or options.default_formats(arithmetic)
    goal = chosen_reward(reward, profile, weights, systems, formats)
    with options.bad_value("--tau"):
        paper = reward == "paper"
        algorithm = GmresIR.paper(tau) if paper else GmresIR(tolerance=tau, stop=DeploymentRule())
    return {
        "algorithm": algorithm,
        "formats": formats,
        "reward": goal,
        "context": Context((KAPPAS[kappa], "norm_inf"), (KAPPA_FLOOR, NORM_FLOOR)),
        "arithmetic": arithmetic,
        "jobs": jobs,
    }


def check_formats(
    algorithm: Algorithm, formats: Sequence[FloatFormat] | None, systems: Systems
) -> None:
    """Refuse formats that no method for these systems has, or that do not run natively."""
    known = algorithm.action_space(None, systems.members).formats
    if lacking := [fmt.name for fmt in formats or () if fmt not in known]:
        raise click.UsageError(
            f"no method for these systems runs in {', '.join(lacking)} here; choose --formats "
            f"among {','.join(fmt.name for fmt in known)}"
        )


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
    return replace(WEIGHTS[weights or "W1"], lambda_iter=LAMBDA_ITER.get(systems[0], 1.0))


def training_facts(tuner: Tuner, systems: Systems) -> dict[str, Any]:
    policy, rewards = tuner.policy_, tuner.rewards_
    chosen = policy.predict(tuner.contexts_)
    if tuner.algorithm.has_methods:  # the front door keeps to methods that fit
        named = (dict(zip(tuner.context_.features, row, strict=True)) for row in tuner.contexts_)
        pairs = zip(systems.members, named, strict=True)
        methods = {sparse: NativeBackend().methods(sparse) for sparse in (False, True)}
        fitting = [
            fitting_actions(tuner.space_, known, methods[system.is_sparse])
            for system, known in pairs
        ]
        states = zip(policy.encode(tuner.contexts_), fitting, strict=True)
        chosen = np.array([policy.rank(state, allowed).first for state, allowed in states])
    return {
        "systems": systems.facts(),
        "arithmetic": tuner.arithmetic_,
        "episodes": tuner.episodes,
        "seed": tuner.seed,
        "states": int(policy.counts.any(axis=1).sum()) if isinstance(policy, TabularQ) else None,
        "coverage": policy.coverage,
        "reward": {
            "policy": float(rewards[np.arange(len(rewards)), chosen].mean()),
            "oracle": float(rewards.max(axis=1).mean()),
            "best_fixed": float(rewards[:, best_fixed_action(rewards)].mean()),
            "all_fp64": float(rewards[:, tuner.space_.safe].mean()),
        },
        "actions": dict(Counter(tuner.space_.names[i] for i in chosen).most_common()),
    }


def training_text(facts: dict[str, Any], systems: str) -> Iterator[str]:
    kind = f"{facts['kind']} policy for {facts['algorithm']}"
    yield f"{facts['policy']}: {kind}, learned from {systems}"
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
    for i, (name, count) in enumerate(facts["actions"].items()):
        yield f"{'' if i else '  chosen':<10}{count:>4} x {name}"
    yield f"  time      {facts['seconds']:.1f} s"
