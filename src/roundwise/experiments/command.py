"""The command ``roundwise reproduce``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import click
from click.core import ParameterSource

from roundwise.backends import BACKENDS
from roundwise.experiments import (
    EXPERIMENTS,
    Settings,
    all_tables,
    departure_records,
    departure_writing,
    reproduce,
    summary,
)
from roundwise.experiments.departure_study import DEPARTURES, study
from roundwise.experiments.findings import check
from roundwise.experiments.native import ORDERS, NativeSettings, reproduce_native
from roundwise.experiments.native_tables import all_tables as native_tables
from roundwise.experiments.native_writing import overview as native_overview
from roundwise.experiments.native_writing import summary as native_summary
from roundwise.experiments.native_writing import write_native
from roundwise.experiments.writing import overview, write_results
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


class Interrupted(click.ClickException):
    exit_code = 130


@click.command("reproduce")
@click.argument(
    "experiment",
    metavar="dense|sparse|pde|ablation|all|native|departures",
    type=click.Choice([*EXPERIMENTS, "all", "native", "departures"]),
)
@click.option("--quick", is_flag=True, help="A taste in about a minute: few, small systems.")
@click.option(
    "--systems",
    type=click.IntRange(min=1),
    metavar="N",
    help="Training systems, and test systems; of native, half as many for training.  "
    "[default: 100]",
)
@click.option(
    "--sizes",
    type=(click.IntRange(min=2), click.IntRange(min=2)),
    metavar="MIN MAX",
    help="Smallest and largest n.  [default: 100 500; native: 1000 1500]",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="S",
    help="Trainings, to tell luck from substance.  [default: 10]",
)
@click.option(
    "--actions",
    type=click.Choice(["25", "35"]),
    default="25",
    show_default=True,
    help="The paper's highest 25 actions, or all monotone ones.",
)
@click.option(
    "--order",
    type=click.Choice(list(ORDERS)),
    help="Of native: actions are monotone in the order of the stages, or in that of the paper's "
    "native study, (u_f, u_g, u, u_r).  [default: stages]",
)
@click.option(
    "--arithmetic",
    type=click.Choice(list(BACKENDS)),
    help="Round every operation, or what is stored.  [default: operation]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes.  [default: all cores]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="S",
    help="Of the data sets and of the first training.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    metavar="DIR",
    help="Where outcomes are kept: one table (an SQLite file) per data set.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where report, tables and figures go.  [default: out/reproduce, out/native or "
    "out/departures]",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers for programs.")
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
        _run_study(settings, cache, jobs, out or Path("out/departures"), as_json)
        return
    out = out or Path("out/reproduce")
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    if experiment == "ablation":
        names = ["dense", "ablation"]  # its findings compare the two, on the same outcomes
    results = written = None
    try:
        results = reproduce(names, settings, cache, jobs=jobs or -1, bars=progress_bar)
        written = write_results(results, out, progress=progress_bar("report"))
    except KeyboardInterrupt:
        pass  # the end of this block closes the bar, so that what follows gets its own line
    if results is None or written is None:
        raise _interrupted(cache)
    findings = check(results)
    if as_json:
        files = [str(path) for path in written]
        facts = summary(results, findings) | {"files": files}
        click.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    for name, result in results.items():
        click.echo(f"\n{result.experiment.title.upper()} ({name})\n")
        _show(all_tables(result).values())
    click.echo("FINDINGS OF THE PAPER (+ confirmed, ~ partly, - refuted)\n")
    for finding in findings:
        click.echo(wrapped(f"{MARKS[finding.verdict]} ", finding.claim))
        click.echo(wrapped("    ", finding.evidence))
    click.echo("\nSUMMARY\n")
    for line in overview(results, findings):
        click.echo(wrapped("* ", line))
    click.echo(f"\nReport: {written[0]}")


def _refuse_options() -> None:
    context = click.get_current_context()
    for name, reason in NOT_FOR_NATIVE.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is not for native: {reason}; leave it out")


def _run_native(settings: NativeSettings, cache: Path, out: Path, as_json: bool) -> None:
    result = written = None
    try:
        result = reproduce_native(settings, cache, progress_bar("native, systems"))
        written = write_native(result, out)
    except KeyboardInterrupt:
        pass  # as above
    if result is None or written is None:
        raise _interrupted(cache)
    if as_json:
        facts = native_summary(result) | {"files": [str(path) for path in written]}
        click.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    click.echo("\nNATIVE CPU VALIDATION (native)\n")
    _show(native_tables(result).values())
    click.echo("SUMMARY\n")
    for line in native_overview(result):
        click.echo(wrapped("* ", line))
    click.echo(f"\nReport: {written[0]}")


def _run_study(settings: Settings, cache: Path, jobs: int | None, out: Path, as_json: bool) -> None:
    results = written = None
    try:
        results = study(settings, cache, jobs=jobs or -1, bars=progress_bar)
        written = departure_writing.write_study(results, out, progress=progress_bar("report"))
    except KeyboardInterrupt:
        pass  # as above
    if results is None or written is None:
        raise _interrupted(cache)
    if as_json:
        facts = departure_writing.summary(results) | {"files": [str(path) for path in written]}
        click.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    click.echo("DEPARTURES OF THE RELEASED CODE\n")
    for name, text in DEPARTURES.items():
        click.echo(wrapped(f"{'+ ' + name:<12}", f"{text}."))
    click.echo()
    _show(departure_records.all_tables(results).values())
    click.echo("SUMMARY\n")
    for line in departure_writing.overview(results):
        click.echo(wrapped("* ", line))
    click.echo(f"\nReport: {written[0]}")


def _interrupted(cache: Path) -> Interrupted:
    return Interrupted(
        f"interrupted; the tables in {cache} keep what is finished, run the same command to go on"
    )


def _show(tables: Iterable[Table]) -> None:
    for table in tables:
        click.echo(format_text(replace(table, note="")))
        if table.note:
            click.echo("\n" + wrapped("", table.note))
        click.echo()


def wrapped(lead: str, text: str) -> str:
    """A paragraph for the terminal, indented below its first characters."""
    return fill(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
