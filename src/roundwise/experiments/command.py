"""The command ``roundwise reproduce``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import click

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
from roundwise.experiments.writing import overview, write_results
from roundwise.outcomes import progress_bar
from roundwise.report import Table, format_text

QUICK = Settings(systems=16, seeds=3, sizes=(60, 160))
WIDTH = 100
MARKS = {"confirmed": "+", "partly": "~", "refuted": "-"}


class Interrupted(click.ClickException):
    exit_code = 130


@click.command("reproduce")
@click.argument(
    "experiment",
    metavar="dense|sparse|pde|ablation|all|departures",
    type=click.Choice([*EXPERIMENTS, "all", "departures"]),
)
@click.option("--quick", is_flag=True, help="A taste in about a minute: few, small systems.")
@click.option(
    "--systems",
    type=click.IntRange(min=1),
    metavar="N",
    help="Training systems, and test systems.  [default: 100]",
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
    help="Where report, tables and figures go.  [default: out/reproduce, or out/departures]",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers for programs.")
def reproduce_command(
    experiment: str,
    quick: bool,
    systems: int | None,
    seeds: int | None,
    actions: str,
    arithmetic: str | None,
    jobs: int | None,
    seed: int,
    cache: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run the paper's experiments again, and print ours beside its numbers.

    For both weightings of the reward (W1, W2) and both tolerances (1e-6, 1e-8). Everything is
    solved once and kept in the cache: a second run, another reward or more seeds take seconds.
    The folder of --out gets report.html (one file, opens offline), report.md, tables as CSV,
    figures, and results.json.

    "departures" runs the dense experiment on the paper's own systems with the departures of its
    released code from its text, one by one and all together, to see which number comes from which.
    It is no part of "all", and takes about 40 minutes on two cores.

    \b
    Examples
      roundwise reproduce all --quick
      roundwise reproduce dense --seeds 30
      roundwise reproduce all --arithmetic storage --out out/storage
      roundwise reproduce departures
    """
    default = QUICK if quick else Settings()
    settings = Settings(
        systems=default.systems if systems is None else systems,
        seeds=default.seeds if seeds is None else seeds,
        seed=seed,
        actions=int(actions),
        arithmetic=arithmetic or default.arithmetic,
        sizes=default.sizes,
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
