"""The command ``roundwise reproduce``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import click

from roundwise.backends import BACKENDS
from roundwise.experiments import EXPERIMENTS, Settings, all_tables, reproduce, summary
from roundwise.experiments.findings import check
from roundwise.experiments.writing import overview, write_results
from roundwise.outcomes import progress_bar
from roundwise.report import format_text

QUICK = Settings(systems=16, seeds=3, sizes=(60, 160))
WIDTH = 100
MARKS = {"confirmed": "+", "partly": "~", "refuted": "-"}


class Interrupted(click.ClickException):
    exit_code = 130


@click.command("reproduce")
@click.argument(
    "experiment",
    metavar="dense|sparse|pde|ablation|all",
    type=click.Choice([*EXPERIMENTS, "all"]),
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
    default="operation",
    show_default=True,
    help="Round every operation, or what is stored.",
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
    default=Path("out/reproduce"),
    show_default=True,
    metavar="DIR",
    help="Where report, tables and figures go.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers for programs.")
def reproduce_command(
    experiment: str,
    quick: bool,
    systems: int | None,
    seeds: int | None,
    actions: str,
    arithmetic: str,
    jobs: int | None,
    seed: int,
    cache: Path,
    out: Path,
    as_json: bool,
) -> None:
    """Run the paper's experiments, our numbers beside its own.

    For both weightings of the reward (W1, W2) and both tolerances (1e-6, 1e-8). Everything is
    solved once and kept in the cache: a second run, another reward or more seeds take seconds.
    The folder of --out gets report.html (one file, opens offline), report.md, tables as CSV,
    figures, and results.json.

    \b
    Examples
      roundwise reproduce all --quick
      roundwise reproduce dense --seeds 30
      roundwise reproduce all --arithmetic storage --out out/storage
    """
    default = QUICK if quick else Settings()
    settings = Settings(
        systems=default.systems if systems is None else systems,
        seeds=default.seeds if seeds is None else seeds,
        seed=seed,
        actions=int(actions),
        arithmetic=arithmetic,
        sizes=default.sizes,
    )
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
        raise Interrupted(
            f"interrupted; the tables in {cache} keep what is finished, run the same command to "
            "go on"
        )
    findings = check(results)
    if as_json:
        files = [str(path) for path in written]
        facts = summary(results, findings) | {"files": files}
        click.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    for name, result in results.items():
        click.echo(f"\n{result.experiment.title.upper()} ({name})\n")
        for table in all_tables(result).values():
            click.echo(format_text(replace(table, note="")))
            if table.note:
                click.echo("\n" + wrapped("", table.note))
            click.echo()
    click.echo("FINDINGS OF THE PAPER (+ confirmed, ~ partly, - refuted)\n")
    for finding in findings:
        click.echo(wrapped(f"{MARKS[finding.verdict]} ", finding.claim))
        click.echo(wrapped("    ", finding.evidence))
    click.echo("\nSUMMARY\n")
    for line in overview(results, findings):
        click.echo(wrapped("* ", line))
    click.echo(f"\nReport: {written[0]}")


def wrapped(lead: str, text: str) -> str:
    """A paragraph for the terminal, indented below its first characters."""
    return fill(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
