"""``roundwise evaluate``: what a saved policy is worth on systems it has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from roundwise.commands.endings import data_errors, echo_json, interruptible
from roundwise.commands.options import (
    EXISTING_FILE,
    count_option,
    jobs_option,
    json_option,
    seed_option,
    table_option,
    tau_option,
)
from roundwise.commands.systems import KAPPAS, check_kappa, load_systems, systems_argument
from roundwise.evaluation import (
    AccuracyTable,
    RegretTable,
    Speedup,
    UsageTable,
    accuracy_table,
    format_table,
    modelled_speedup,
    regret_table,
    usage_table,
)
from roundwise.outcomes import OutcomeTable, OutcomeView, fill, progress_bar
from roundwise.rewards import CostReward, ProblemFacts, cost_matrix, met_matrix
from roundwise.tuning import Tuner, view_contexts, view_rewards


@click.command("evaluate")
@click.argument("policy", metavar="POLICY.json", type=EXISTING_FILE)
@systems_argument
@count_option("--test", "How many held-out systems of a data set.  [default: 100]")
@seed_option("Seed of the data set; its held-out half is never trained on.")
@tau_option("Tolerance of success.  [default: that of the policy's inner GMRES]")
@table_option
@jobs_option
@json_option()
def evaluate_command(
    policy: Path,
    systems: Sequence[str],
    test: int | None,
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

    \b
    Examples
      roundwise evaluate policy.json dense --test 20 --jobs -1
      roundwise evaluate policy.json matrices/*.mtx --json
    """
    tuner = Tuner.load(policy)
    tau = success_tolerance(tuner) if tau is None else tau
    if not tau > 0:
        raise click.BadParameter(f"{tau}; choose a number > 0", param_hint="--tau")
    loaded = load_systems(systems, "test", test, seed)
    check_kappa(tuner.context, loaded.members)
    outcomes = OutcomeTable(policy.with_suffix(".sqlite") if table is None else table)
    # Tables group the systems by condition number: the one that the policy sees, if any.
    seen = (name for name in KAPPAS.values() if name in tuner.context.features)
    kappa = next(seen, "kappa_exact")

    def filled() -> int:
        return fill(
            outcomes,
            tuner.algorithm,
            loaded.members,
            tuner.space_,
            arithmetic=tuner.arithmetic,
            features=tuple(dict.fromkeys((*tuner.context.features, kappa))),
            jobs=jobs,
            progress=progress_bar(loaded.name),
        )

    with data_errors():
        new = interruptible(filled, outcomes)
        view = outcomes.view(tuner.algorithm, loaded.members, tuner.space_, tuner.arithmetic)
        judged = judge(tuner, view, kappa, tau)
    trained = set(tuner.provenance_["problems"])
    kind = tuner.policy_.name.replace("_", "-")
    known = sum(system.fingerprint in trained for system in loaded.members)
    if as_json:
        echo_json(
            {
                "policy": str(policy),
                "kind": kind,
                "arithmetic": tuner.arithmetic,
                "systems": {
                    "name": loaded.name,
                    "count": len(loaded.members),
                    "trained_on": known,
                },
                "table": str(outcomes.path),
                "outcomes_computed": new,
                **asdict(judged),
            }
        )
        return
    click.echo(f"{policy}: {kind} policy on {loaded}, {known or 'none'} of them trained on")
    click.echo("\n".join(judged.lines()))


def success_tolerance(tuner: Tuner) -> float:
    tolerance = getattr(tuner.algorithm, "tolerance", None)
    if tolerance is None:
        raise click.UsageError(f"{type(tuner.algorithm).__name__} has no tolerance; pass --tau")
    return float(tolerance)


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
    space, reward = tuner.space_, tuner.reward
    assert reward is not None  # a loaded tuner has one
    kappas = view.features[:, view.feature_names.index(kappa)]
    rows = [view.row(i) for i in range(view.shape[0])]
    chosen = tuner.policy_.predict(view_contexts(view, tuner.context))
    baseline = [row[space.safe] for row in rows]
    picked = [row[i] for row, i in zip(rows, chosen.tolist(), strict=True)]
    speedup = None
    if isinstance(reward, CostReward):
        facts = [
            ProblemFacts.from_stored(problem, value)
            for problem, value in zip(view.problems, kappas.tolist(), strict=True)
        ]
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
