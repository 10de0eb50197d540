"""``roundwise fill`` and ``roundwise merge``: tables of outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import click

from roundwise._lazy import require
from roundwise.actions import monotone_space
from roundwise.algorithms import GmresIR
from roundwise.formats import FloatFormat
from roundwise.outcomes import OutcomeTable, fill, progress_bar
from roundwise_studies.commands import options
from roundwise_studies.commands.outputs import interruptible
from roundwise_studies.datasets import DATA_SETS


def parsed_shard(text: str) -> tuple[int, int]:
    i, _, n = text.partition("/")
    if not (i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
        raise ValueError(f"{text!r}; pass i/n with 1 <= i <= n, e.g. 1/4")
    return int(i), int(n)


@click.command("fill")
@click.argument("problem_set", metavar="dense|sparse|pde", type=click.Choice(list(DATA_SETS)))
@options.table("The file to fill.", required=True)
@options.count("--train", "Training systems.", least=0, default=100)
@options.count("--test", "Held-out systems.", least=0, default=100)
@options.seed("Seed of the systems.")
@options.tau("Tolerance of the inner GMRES, and stagnation ratio.", default=1e-6)
@options.arithmetic(
    "Round every operation (operation), round results when stored (storage), or run and time "
    "on the hardware (native, cuda).",
    default="operation",
)
@options.formats
@options.count("--repeats", "Timed runs of each native action.  [default: 3]", metavar="R")
@options.jobs
@click.option("--dask", metavar="ADDRESS", help="Compute on the cluster of this Dask scheduler.")
@options.valued(
    "--shard",
    str,
    "Compute only the i-th of n parts; merge them later.",
    metavar="i/n",
    check=parsed_shard,
)
def fill_command(
    problem_set: str,
    table: Path,
    train: int,
    test: int,
    seed: int,
    tau: float,
    arithmetic: str,
    formats: list[FloatFormat] | None,
    repeats: int | None,
    jobs: int | None,
    dask: str | None,
    shard: tuple[int, int] | None,
) -> None:
    """Run GMRES-IR with every action on the paper's systems.

    The systems follow from their numbers and the seed; the settings are those of Carson & Chen.
    The outcomes go to a table, an SQLite file. What it holds already is not computed again:
    after an interruption, run the same command, and it goes on.

    \b
    Examples
      roundwise fill dense --table dense.sqlite --jobs -1
      roundwise fill sparse --table sparse.sqlite --tau 1e-8 --dask tcp://head:8786
      roundwise fill dense --table dense.sqlite --arithmetic native --repeats 5
    As an array job of a batch system, in four parts:
      roundwise fill pde --table part1.sqlite --shard 1/4
      roundwise merge pde.sqlite part?.sqlite
    """
    if jobs is not None and dask is not None:
        raise click.UsageError("--jobs and --dask are both given; choose one")
    if train + test == 0:
        raise click.UsageError("--train and --test are both 0; ask for at least one system")
    with options.bad_value("--tau"):
        algorithm = GmresIR.paper(tau)
    if arithmetic == "native" and not (jobs in (None, 1) and dask is None):
        raise click.UsageError(
            "--jobs and --dask are not for native arithmetic: runs are timed one by one"
        )
    if arithmetic != "native" and repeats is not None:
        raise click.UsageError("--repeats is for --arithmetic native: others are not timed")
    space = monotone_space(algorithm.stages, formats or options.default_formats(arithmetic))
    target = OutcomeTable(table)  # complains before any work

    def filled() -> int:
        data = DATA_SETS[problem_set](train, test, seed=seed)
        with dask_client(dask) as client:
            return fill(
                target,
                algorithm,
                (*data.train, *data.test),
                space,
                arithmetic=arithmetic,
                repeats=repeats,
                jobs=jobs,
                client=client,
                shard=shard,
                progress=progress_bar(problem_set),
            )

    new = interruptible(filled, target)
    click.echo(f"{table}: {new} outcomes computed, {len(target)} in the table")


def dask_client(address: str | None) -> AbstractContextManager[Any]:
    """A client of the Dask scheduler at `address`; None if that is None."""
    if address is None:
        return nullcontext()
    distributed = require("distributed", "dask")
    try:
        return distributed.Client(address, timeout="10s")  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"no Dask scheduler at {address} ({error}); start one with: dask scheduler"
        ) from error


@click.command("merge")
@click.argument("out", type=options.FILE)
@click.argument("tables", metavar="TABLE...", type=options.EXISTING_FILE, nargs=-1, required=True)
def merge_command(out: Path, tables: Sequence[Path]) -> None:
    """Merge tables of outcomes, say those of shards.

    OUT takes over what every TABLE knows, and is made if it does not exist. Facts that two
    tables have must agree, bit for bit: if not, the error names the outcome, and nothing is
    taken over from that TABLE. What was taken over from those before it stays.

    \b
    Example
      roundwise merge dense.sqlite part1.sqlite part2.sqlite
    """
    with ExitStack() as unless_merged:
        if not out.exists():
            unless_merged.callback(remove_if_empty, out)
        target = OutcomeTable(out)
        before = len(target)
        target.merge(tables)
        unless_merged.pop_all()
    click.echo(f"{out}: {len(target) - before} outcomes taken over, {len(target)} in the table")


def remove_if_empty(path: Path) -> None:
    """Remove a table that was made in vain."""
    if path.exists() and not OutcomeTable(path).content():
        path.unlink()
