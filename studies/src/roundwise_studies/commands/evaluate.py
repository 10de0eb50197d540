"""``roundwise evaluate``: what a saved policy is worth on systems it has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from roundwise.backends import get_backend
from roundwise.commands.outputs import data_errors, echo, format_table, keep
from roundwise.commands.solve import check_kappa
from roundwise.outcomes import OutcomeTable, OutcomeView, fill, progress_bar
from roundwise.policies.profile import STRUCTURE
from roundwise.rewards import CostReward, ProblemFacts
from roundwise.tuning import Tuner, view_contexts, view_rewards
from roundwise_studies.commands import options
from roundwise_studies.commands.outputs import interruptible
from roundwise_studies.commands.systems import (
    KAPPAS,
    check_methods,
    files_among,
    load_systems,
    system_sizes_option,
    systems_argument,
)
from roundwise_studies.evaluation import (
    accuracy_table,
    best_fixed_action,
    cost_matrix,
    met_matrix,
    modelled_speedup,
    regret_table,
)
from roundwise_studies.evaluation.accuracy import AccuracyTable, UsageTable, usage_table
from roundwise_studies.evaluation.choices import RegretTable, Speedup
from roundwise_studies.evaluation.tables import Interval, ratio_interval
from roundwise_studies.evaluation.times import (
    Floats,
    Measured,
    PolicyTimes,
    first_actions,
    policy_times,
)


@click.command("evaluate")
@click.argument("policy", metavar="POLICY.json", type=options.EXISTING_FILE)
@systems_argument
@options.count("--test", "How many held-out systems of a data set.  [default: 100]")
@system_sizes_option
@options.seed("Seed of the data set; its held-out half is never trained on.")
@options.tau("Tolerance of success.  [default: that of the policy's inner GMRES]")
@options.table("Where outcomes are kept.  [default: POLICY.sqlite]")
@options.jobs
@options.as_json()
def evaluate_command(
    policy: Path,
    systems: Sequence[str],
    test: int | None,
    sizes: tuple[int, int] | None,
    seed: int,
    tau: float | None,
    table: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Judge a saved policy on systems that it has not seen.

    Every action is run once on every system, so that the policy can be compared with the best
    action of each system (the oracle), the best single action, and all-FP64. The outcomes are
    kept in a table, as those of `roundwise train` are.

    A policy for verified-solve is judged by the measured time of whole solves, that of its
    features included.

    \b
    Examples
      roundwise evaluate policy.json dense --test 20 --jobs -1
      roundwise evaluate policy.json matrices/*.mtx --json
      roundwise evaluate mine.json dense --test 20 --sizes 500 2000
    """
    table = policy.with_suffix(".sqlite") if table is None else table
    keep([policy, *files_among(systems)], table=table)
    tuner = Tuner.load(policy)
    name = type(tuner.algorithm).__name__
    timed = tuner.algorithm.has_methods  # the front door's algorithm
    if timed:
        options.refuse_given(
            ("tau", "jobs"),
            "for policies for GMRES-IR; this one is judged by the gate and by the time of one "
            "run after the other: leave it out",
        )
    else:
        tau = getattr(tuner.algorithm, "tolerance", None) if tau is None else tau
        if tau is None:
            raise click.UsageError(f"{name} has no tolerance; pass --tau")
        if not tau > 0:
            raise click.BadParameter(f"{tau}; choose a number > 0", param_hint="--tau")
    loaded = load_systems(systems, "test", test, seed, sizes)
    check_kappa(tuner.context_, loaded.members)
    # Tables group the systems by condition number: the one that the policy sees, if any.
    seen = [kappa for kappa in KAPPAS.values() if kappa in tuner.context_.features]
    kappa = (*seen, "kappa_exact")[0]
    needed: tuple[str, ...] = (kappa,)
    if timed:
        check_methods(tuner.space_, get_backend(tuner.arithmetic_), loaded.members)
        needed = STRUCTURE
    outcomes = OutcomeTable(table)

    def filled() -> int:
        return fill(
            outcomes,
            tuner.algorithm,
            loaded.members,
            tuner.space_,
            arithmetic=tuner.arithmetic_,
            features=tuple(dict.fromkeys((*tuner.context_.features, *needed))),
            jobs=jobs,
            progress=progress_bar(loaded.name),
        )

    with data_errors():
        new = interruptible(filled, outcomes)
        view = outcomes.view(tuner.algorithm, loaded.members, tuner.space_, tuner.arithmetic_)
        judged = judge_times(tuner, view) if tau is None else judge(tuner, view, kappa, tau)
    trained = set(tuner.provenance_["problems"])
    kind = tuner.policy_.name.replace("_", "-")
    known = sum(system.fingerprint in trained for system in loaded.members)
    title = f"{policy}: {kind} policy for {name} on {loaded}, {known or 'none'} of them trained on"
    facts = {
        "policy": str(policy),
        "kind": kind,
        "algorithm": name,
        "arithmetic": tuner.arithmetic_,
        "systems": loaded.facts() | {"trained_on": known},
        "table": str(outcomes.path),
        "outcomes_computed": new,
        **asdict(judged),
    }
    echo(facts, [title, *judged.lines()], as_json)


@dataclass(frozen=True)
class Judgement:
    """All tables about a policy; `safe_accuracy` is the safe action's, to compare with."""

    tau: float
    safe_action: str
    accuracy: AccuracyTable
    safe_accuracy: AccuracyTable
    actions: dict[str, int]
    usage: UsageTable
    regret: RegretTable
    speedup: Speedup | None

    def lines(self) -> Iterator[str]:
        yield f"\nThe policy's accuracy (tau = {self.tau:g})\n"
        yield format_table(self.accuracy.to_rows())
        yield f"\nThe same for {self.safe_action}\n"
        yield format_table(self.safe_accuracy.to_rows())
        if any(r.vacuous for r in self.accuracy.ranges):
            yield "* the paper's threshold, tau times the median kappa, exceeds 1: it asks nothing"
        yield "\nStages of a solve that run in each format, on average\n"
        yield format_table(self.usage.to_rows())
        yield "\nMean reward, and how far it is behind each reference [95 % interval]\n"
        columns = ("policy", "reward", "regret: oracle", "best fixed", "all-FP64")
        yield format_table([{c: row[c] for c in columns} for row in self.regret.to_rows()])
        if self.speedup is not None:
            yield "\nModelled speedup over all-FP64; misses of the target pay for the fallback\n"
            yield format_table(self.speedup.to_rows())


def judge(tuner: Tuner, view: OutcomeView, kappa: str, tau: float) -> Judgement:
    """Compare the policy's choices on the view's problems with the references."""
    space, reward = tuner.space_, tuner.reward_
    kappas = view.features[:, view.feature_names.index(kappa)]
    rows = [view.row(i) for i in range(view.shape[0])]
    chosen = tuner.policy_.predict(view_contexts(view, tuner.context_))
    baseline = [row[space.safe] for row in rows]
    picked = [row[i] for row, i in zip(rows, chosen.tolist(), strict=True)]
    speedup = None
    if isinstance(reward, CostReward):
        pairs = zip(view.problems, kappas.tolist(), strict=True)
        facts = [ProblemFacts.from_stored(problem, value) for problem, value in pairs]
        speedup = modelled_speedup(
            cost_matrix(reward.cost, rows),
            met_matrix(reward.target, rows, facts, space),
            chosen,
            space.safe,
            np.random.default_rng(0),
        )
    return Judgement(
        tau,
        space.names[space.safe],
        accuracy_table(picked, baseline, kappas, tau),
        accuracy_table(baseline, baseline, kappas, tau),
        dict(Counter(space.names[i] for i in chosen).most_common()),
        usage_table(chosen, space, kappas),
        regret_table(
            view_rewards(view, reward, space),
            {tuner.policy_.name: chosen},
            space.safe,
            np.random.default_rng(0),
        ),
        speedup,
    )


@dataclass(frozen=True)
class Times:
    """How long solves take with one policy: `comparison` with the oracle, `speedup` over FP64."""

    comparison: PolicyTimes
    speedup: Interval


@dataclass(frozen=True)
class TimedJudgement:
    """What a policy for the front door is worth in measured time.

    `actions` counts the systems that start with each action, `sufficed` those on which it was
    enough. `times` are of the policy, its features' time included, and of the references.
    """

    safe_action: str
    actions: dict[str, int]
    sufficed: dict[str, int]
    times: tuple[Times, ...]

    def lines(self) -> Iterator[str]:
        yield "\nThe first action, and on how many systems it sufficed\n"
        yield format_table(
            [
                {"action": name, "systems": count, "sufficed": self.sufficed[name]}
                for name, count in self.actions.items()
            ]
        )
        yield (
            "\nMeasured time of whole solves, the policy's features included [95 % interval]: "
            "speedup over\nall-FP64, and regret, the mean log2 of its time over that of the best "
            "first action\n"
        )
        yield format_table(
            [
                {
                    "policy": row.comparison.policy,
                    "speedup": str(row.speedup),
                    "lowest": row.comparison.worst,
                    "regret": str(row.comparison.regret),
                    "within 5 % of best": f"{100 * row.comparison.near:.0f} %",
                }
                for row in self.times
            ]
        )


def judge_times(tuner: Tuner, view: OutcomeView) -> TimedJudgement:
    """Compare the time of solves that the policy starts with that of the references."""
    measured = Measured.of(view)
    space, climbs, everyone = measured.space, measured.climbs, np.arange(view.shape[0])
    first, seconds = first_actions(tuner.policy_, tuner.context_, measured, everyone)
    names = [space.names[i] for i in first]
    enough = [view.outcome(i, a).converged for i, a in enumerate(first.tolist())]

    def times(name: str, seconds: Floats) -> Times:
        return Times(
            policy_times("", name, seconds, measured.oracle, measured.safe),
            ratio_interval(measured.safe, seconds, np.random.default_rng(0)),
        )

    fixed = best_fixed_action(-np.log2(climbs))
    return TimedJudgement(
        space.names[space.safe],
        dict(Counter(names).most_common()),
        {name: sum(e for e, n in zip(enough, names, strict=True) if n == name) for name in names},
        (
            times(tuner.policy_.name, seconds),
            times("oracle", measured.oracle),
            times(f"best fixed: {space.names[fixed]}", climbs[:, fixed]),
            times("all-FP64", measured.safe),
        ),
    )
