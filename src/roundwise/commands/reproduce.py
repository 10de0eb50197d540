"""``roundwise reproduce``: the paper's experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from click.core import ParameterSource

from roundwise.commands.endings import echo_json, interruptible
from roundwise.commands.options import (
    FOLDER,
    arithmetic_option,
    choice_option,
    count_option,
    json_option,
    seed_option,
)
from roundwise.experiments.native import tables as native_tables
from roundwise.experiments.native import writing as native_writing
from roundwise.experiments.native.study import (
    ORDERS,
    NativeResult,
    NativeSettings,
    reproduce_native,
)
from roundwise.experiments.released import records as departure_records
from roundwise.experiments.released import writing as departure_writing
from roundwise.experiments.released.study import DEPARTURES, study
from roundwise.experiments.simulated import (
    EXPERIMENTS,
    Result,
    Settings,
    all_tables,
    reproduce,
    summary,
)
from roundwise.experiments.simulated.findings import check
from roundwise.experiments.simulated.writing import overview, write_results
from roundwise.outcomes import progress_bar
from roundwise.report import Table, format_text

QUICK = Settings(systems=16, seeds=3, sizes=(60, 160))
QUICK_NATIVE = NativeSettings(train=6, test=8, sizes=(100, 200))
NOT_FOR_NATIVE = {
    "seeds": "its one training has the seed of --seed",
    "actions": "it runs all monotone actions of three formats",
    "arithmetic": "its arithmetic is the hardware's",
    "jobs": "its runs are timed one by one",
}
WIDTH = 100
MARKS = {"confirmed": "+", "partly": "~", "refuted": "-"}


@click.command("reproduce")
@click.argument(
    "experiment",
    metavar="dense|sparse|pde|ablation|all|native|departures",
    type=click.Choice([*EXPERIMENTS, "all", "native", "departures"]),
)
@click.option("--quick", is_flag=True, help="A taste in about a minute: few, small systems.")
@count_option(
    "--systems",
    "Training systems, and test systems; of native, half as many for training.  [default: 100]",
)
@click.option(
    "--sizes",
    type=(click.IntRange(min=2), click.IntRange(min=2)),
    metavar="MIN MAX",
    help="Smallest and largest n.  [default: 100 500; native: 1000 1500]",
)
@count_option("--seeds", "Trainings, to tell luck from substance.  [default: 10]", metavar="S")
@choice_option(
    "--actions",
    ["25", "35"],
    "The paper's highest 25 actions, or all monotone ones.",
    default="25",
)
@choice_option(
    "--order",
    ORDERS,
    "Of native: actions are monotone in the order of the stages, or in that of the paper's "
    "native study, (u_f, u_g, u, u_r).  [default: stages]",
)
@arithmetic_option("Round every operation, or what is stored.  [default: operation]")
@count_option("--jobs", "Processes.  [default: all cores]")
@seed_option("Of the data sets and of the first training.")
@click.option(
    "--cache",
    type=FOLDER,
    default=Path("out"),
    show_default=True,
    metavar="DIR",
    help="Where outcomes are kept: one table (an SQLite file) per data set.",
)
@click.option(
    "--out",
    type=FOLDER,
    metavar="DIR",
    help="Where report, tables and figures go.  [default: out/reproduce, out/native or "
    "out/departures]",
)
@json_option("Print all numbers for programs.")
def reproduce_command(
    experiment: str,
    quick: bool,
    systems: int | None,
    sizes: tuple[int, int] | None,
    seeds: int | None,
    actions: str,
    order: str | None,
    arithmetic: str | None,
    jobs: int | None,
    seed: int,
    cache: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run the paper's experiments, our numbers beside its own.

    For both weightings of the reward (W1, W2) and both tolerances (1e-6, 1e-8). Everything is
    solved once and kept in the cache: a second run, another reward or more seeds take seconds.
    The folder of --out gets report.html (one file, opens offline), report.md, tables as CSV,
    figures, and results.json.

    "native" is the paper's study of real low precision, measured on this machine beside LAPACK;
    leave the machine alone meanwhile, about ten minutes on two cores. Times are kept, too: remove
    native.sqlite from the cache to measure again. It is no part of "all".

    "departures" runs the dense experiment on the paper's own systems with the departures of its
    released code from its text, one by one and all together, to see which number comes from which.
    It is no part of "all", and takes about 40 minutes on two cores.

    \b
    Examples
      roundwise reproduce all --quick
      roundwise reproduce dense --seeds 30
      roundwise reproduce all --arithmetic storage --out out/storage
      roundwise reproduce native --quick
      roundwise reproduce departures
    """
    if sizes is not None and sizes[0] > sizes[1]:
        raise click.BadParameter("the smallest n comes first", param_hint="--sizes")
    if experiment == "native":
        _refuse_options()
        given = QUICK_NATIVE if quick else NativeSettings()
        if systems is not None:
            given = replace(given, train=max(1, systems // 2), test=systems)
        native = replace(given, sizes=sizes or given.sizes, seed=seed, order=order or given.order)
        _run_native(native, cache, out or Path("out/native"), as_json)
        return
    if order is not None:
        raise click.UsageError("--order is for native; leave it out")
    default = QUICK if quick else Settings()
    settings = Settings(
        systems=default.systems if systems is None else systems,
        seeds=default.seeds if seeds is None else seeds,
        seed=seed,
        actions=int(actions),
        arithmetic=arithmetic or default.arithmetic,
        sizes=sizes or default.sizes,
    )
    if experiment == "departures":
        if arithmetic is not None:
            raise click.UsageError("departures runs in both arithmetics; leave --arithmetic out")
        _run_study(settings, cache, jobs or -1, out or Path("out/departures"), as_json)
        return
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    if experiment == "ablation":
        names = ["dense", "ablation"]  # its findings compare the two, on the same outcomes
    _run_experiments(names, settings, cache, jobs or -1, out or Path("out/reproduce"), as_json)


def _refuse_options() -> None:
    context = click.get_current_context()
    for name, reason in NOT_FOR_NATIVE.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is not for native: {reason}; leave it out")


def _run_experiments(
    names: Sequence[str], settings: Settings, cache: Path, jobs: int, out: Path, as_json: bool
) -> None:
    def work() -> tuple[dict[str, Result], list[Path]]:
        results = reproduce(names, settings, cache, jobs=jobs, bars=progress_bar)
        return results, write_results(results, out, progress=progress_bar("report"))

    results, written = interruptible(work, cache)
    findings = check(results)
    if as_json:
        _echo_numbers(summary(results, findings), written)
        return
    for name, result in results.items():
        click.echo(f"\n{result.experiment.title.upper()} ({name})\n")
        _show(all_tables(result).values())
    click.echo("FINDINGS OF THE PAPER (+ confirmed, ~ partly, - refuted)\n")
    for finding in findings:
        click.echo(wrapped(f"{MARKS[finding.verdict]} ", finding.claim))
        click.echo(wrapped("    ", finding.evidence))
    click.echo()
    _conclude(overview(results, findings), written)


def _run_native(settings: NativeSettings, cache: Path, out: Path, as_json: bool) -> None:
    def work() -> tuple[NativeResult, list[Path]]:
        result = reproduce_native(settings, cache, progress_bar("native, systems"))
        return result, native_writing.write_native(result, out)

    result, written = interruptible(work, cache)
    if as_json:
        _echo_numbers(native_writing.summary(result), written)
        return
    click.echo("\nNATIVE CPU VALIDATION (native)\n")
    _show(native_tables.all_tables(result).values())
    _conclude(native_writing.overview(result), written)


def _run_study(settings: Settings, cache: Path, jobs: int, out: Path, as_json: bool) -> None:
    def work() -> tuple[dict[str, Result], list[Path]]:
        results = study(settings, cache, jobs=jobs, bars=progress_bar)
        bar = progress_bar("report")
        return results, departure_writing.write_study(results, out, progress=bar)

    results, written = interruptible(work, cache)
    if as_json:
        _echo_numbers(departure_writing.summary(results), written)
        return
    click.echo("DEPARTURES OF THE RELEASED CODE\n")
    for name, text in DEPARTURES.items():
        click.echo(wrapped(f"{'+ ' + name:<12}", f"{text}."))
    click.echo()
    _show(departure_records.all_tables(results).values())
    _conclude(departure_writing.overview(results), written)


def _echo_numbers(facts: Mapping[str, Any], written: Sequence[Path]) -> None:
    echo_json({**facts, "files": [str(path) for path in written]})


def _show(tables: Iterable[Table]) -> None:
    for table in tables:
        click.echo(format_text(replace(table, note="")))
        if table.note:
            click.echo("\n" + wrapped("", table.note))
        click.echo()


def _conclude(lines: Iterable[str], written: Sequence[Path]) -> None:
    click.echo("SUMMARY\n")
    for line in lines:
        click.echo(wrapped("* ", line))
    click.echo(f"\nReport: {written[0]}")


def wrapped(lead: str, text: str) -> str:
    """A paragraph for the terminal, indented below its first characters."""
    return fill(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
