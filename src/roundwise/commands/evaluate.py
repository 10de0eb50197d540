"""``roundwise evaluate``: what a saved policy is worth on systems it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from roundwise.backends import get_backend
from roundwise.commands import options
from roundwise.commands.endings import data_errors, echo, interruptible
from roundwise.commands.judgements import judge, judge_times
from roundwise.commands.outputs import keep
from roundwise.commands.systems import (
    KAPPAS,
    check_kappa,
    check_methods,
    files_among,
    load_systems,
    system_sizes_option,
    systems_argument,
)
from roundwise.outcomes import OutcomeTable, fill, progress_bar
from roundwise.policies.profile import STRUCTURE
from roundwise.tuning import Tuner


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
