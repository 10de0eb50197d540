"""The `roundwise` command.

Errors are one line on stderr. Exit codes: 0 success, 1 an error of the library, 2 wrong
arguments, 130 interrupted.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import roundwise
from roundwise import GmresIR, RoundwiseError, UnknownNameError, problems
from roundwise.actions import monotone_space
from roundwise.backends import BACKENDS, native_formats
from roundwise.calibration import ProfileError, load_profile, profile_path
from roundwise.formats import NAMED_FORMATS, FloatFormat, get_format
from roundwise.machine import Machine
from roundwise.outcomes import RESULTS_VERSION, OutcomeTable, fill, progress_bar
from roundwise.outcomes.optional import require
from roundwise.outcomes.summary import table_summary

try:
    import click
except ModuleNotFoundError:
    # This module is the command and nothing else: its user expects a line, not a traceback.
    raise SystemExit("roundwise: the command needs click; pip install roundwise[cli]") from None

from roundwise.calibration.command import calibrate_command
from roundwise.experiments.command import reproduce_command

INTERRUPTED = 130
DEFAULT_FORMATS = {False: ("bf16", "tf32", "fp32", "fp64"), True: ("fp32", "fp64")}  # by native


class OneLineErrors(click.Group):
    """A group of commands whose errors are one line and never a traceback."""

    def main(  # type: ignore[override]  # click's overloads tell return types apart
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        extra["standalone_mode"] = False  # click would print the usage before each error
        try:
            code = super().main(args, prog_name, **extra)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else self.name
            complain(f"{path}: {error.format_message().rstrip('.')}; see {path} --help")
            code = error.exit_code
        except click.ClickException as error:
            complain(f"roundwise: {error.format_message()}")
            code = error.exit_code
        except click.Abort:
            complain("roundwise: interrupted")
            code = INTERRUPTED
        except (RoundwiseError, ImportError, OSError) as error:
            complain(f"roundwise: {error}")
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def complain(message: str) -> None:
    click.echo(" ".join(message.split()), err=True)


def parsed_formats(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> list[FloatFormat] | None:
    if text is None:
        return None
    try:
        return [get_format(name.strip()) for name in text.split(",")]
    except UnknownNameError as error:
        raise click.BadParameter(str(error)) from error


def parsed_shard(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    if text is None:
        return None
    i, _, n = text.partition("/")
    if not (i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
        raise click.BadParameter(f"{text!r}; pass i/n with 1 <= i <= n, e.g. 1/4")
    return int(i), int(n)


def checked_jobs(ctx: click.Context, param: click.Parameter, count: int | None) -> int | None:
    if count is not None and count != -1 and count < 1:
        raise click.BadParameter(f"{count}; pass at least 1, or -1 for all cores")
    return count


TABLE = click.Path(dir_okay=False, path_type=Path)
EXISTING_TABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    cls=OneLineErrors,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(roundwise.__version__, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Learn how little floating-point precision each step of a solver needs.

    Each command explains itself: roundwise COMMAND --help.

    \b
    Example
      roundwise fill pde --table pde.sqlite --train 10 --test 0
      roundwise info --table pde.sqlite
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


main.add_command(reproduce_command)
main.add_command(calibrate_command)


@main.command("fill")
@click.argument(
    "problem_set", metavar="dense|sparse|pde", type=click.Choice(list(problems.DATA_SETS))
)
@click.option("--table", type=TABLE, required=True, metavar="PATH", help="The file to fill.")
@click.option(
    "--train",
    default=100,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=0),
    help="Training systems.",
)
@click.option(
    "--test",
    default=100,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=0),
    help="Held-out systems.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    metavar="S",
    type=click.IntRange(min=0),
    help="What the systems are made from.",
)
@click.option(
    "--tau",
    default=1e-6,
    show_default=True,
    metavar="T",
    help="Tolerance of the inner GMRES, and stagnation ratio.",
)
@click.option(
    "--arithmetic",
    default="operation",
    show_default=True,
    type=click.Choice(list(BACKENDS)),
    help="Round every operation, or what is stored; or run on the hardware, and time it.",
)
@click.option(
    "--formats",
    metavar="F,F,...",
    callback=parsed_formats,
    help="Actions are all choices whose bits do not decrease from stage to stage.  "
    "[default: bf16,tf32,fp32,fp64; native: fp32,fp64]",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    metavar="R",
    help="How often a native run is timed.  [default: 3]",
)
@click.option(
    "--jobs",
    type=int,
    metavar="N",
    callback=checked_jobs,
    help="Processes; -1 for all cores.  [default: 1]",
)
@click.option("--dask", metavar="ADDRESS", help="Compute on the cluster of this Dask scheduler.")
@click.option(
    "--shard",
    metavar="i/n",
    callback=parsed_shard,
    help="Compute only the i-th of n parts; merge them later.",
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
    try:
        algorithm = GmresIR.paper(tau)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--tau") from error
    if arithmetic == "native" and not (jobs in (None, 1) and dask is None):
        raise click.UsageError(
            "--jobs and --dask are not for native arithmetic: runs are timed one by one"
        )
    if arithmetic != "native" and repeats is not None:
        raise click.UsageError("--repeats is for --arithmetic native: others are not timed")
    space = monotone_space(algorithm.stages, formats or DEFAULT_FORMATS[arithmetic == "native"])
    target = OutcomeTable(table)  # complains before any work
    new = None
    try:
        data = problems.DATA_SETS[problem_set](train, test, seed=seed)
        with dask_client(dask) as client:
            new = fill(
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
    except KeyboardInterrupt:
        pass  # the end of this block closes the bar, so that what follows gets its own line
    if new is None:
        complain(
            f"roundwise: interrupted; {table} keeps what is finished ({len(target)} outcomes), "
            "run the same command to go on"
        )
        sys.exit(INTERRUPTED)
    click.echo(f"{table}: {new} outcomes computed, {len(target)} in the table")


@contextmanager
def dask_client(address: str | None) -> Iterator[Any]:
    """A client of the scheduler at that address; None without one."""
    if address is None:
        yield None
        return
    distributed = require("distributed", "dask")
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"no Dask scheduler at {address} ({error}); start one with: dask scheduler"
        ) from error
    with client:
        yield client


@main.command()
@click.argument("out", type=TABLE)
@click.argument("tables", metavar="TABLE...", type=EXISTING_TABLE, nargs=-1, required=True)
def merge(out: Path, tables: Sequence[Path]) -> None:
    """Merge tables of outcomes, say those of shards.

    OUT takes over what every TABLE knows, and is made if it does not exist. Facts that two
    tables have must agree, bit for bit: if not, the error names the outcome, and nothing is
    taken over from that TABLE.

    \b
    Example
      roundwise merge dense.sqlite part1.sqlite part2.sqlite
    """
    target = OutcomeTable(out)
    before = len(target)
    target.merge(tables)
    click.echo(f"{out}: {len(target) - before} outcomes taken over, {len(target)} in the table")


@main.command()
@click.option("--table", type=EXISTING_TABLE, metavar="PATH", help="Tell what a table holds.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def info(table: Path | None, as_json: bool) -> None:
    """Tell what is installed, or what a table holds.

    Without --table: versions, the machine with its threads and BLAS, and formats.
    With it: problems, algorithms with their settings, and how runs ended.

    \b
    Examples
      roundwise info
      roundwise info --table dense.sqlite --json
    """
    facts = installation_facts() if table is None else table_summary(table)
    if as_json:
        click.echo(json.dumps(facts, indent=2, allow_nan=False))
    else:
        text = installation_text if table is None else table_text
        click.echo("\n".join(text(facts)))


def installation_facts() -> dict[str, Any]:
    machine = Machine.this()
    try:
        load_profile()
        profile = str(profile_path(machine))
    except ProfileError as error:
        profile = f"none: {error}"
    return {
        "roundwise": roundwise.__version__,
        "results_version": RESULTS_VERSION,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "machine": machine.to_dict() | {"key": machine.key, "architecture": platform.machine()},
        "simd": roundwise.get_simd_level(),
        "simd_levels": roundwise.simd_levels(),
        "threads": roundwise.get_num_threads(),
        "arithmetic": list(BACKENDS),
        "native_formats": [fmt.name for fmt in native_formats()],
        "profile": profile,
        "formats": [
            {"name": fmt.name, "p": fmt.p, "emin": fmt.emin, "emax": fmt.emax, "bits": fmt.bits}
            for fmt in NAMED_FORMATS.values()
        ],
    }


def installation_text(facts: dict[str, Any]) -> Iterator[str]:
    machine = facts["machine"]
    yield (
        f"roundwise {facts['roundwise']} (Python {facts['python']}, NumPy {facts['numpy']}, "
        f"SciPy {facts['scipy']}, {machine['architecture']})"
    )
    yield f"processor   {machine['cpu']}, {machine['cores']} cores"
    yield f"kernels     {facts['simd']} (of {', '.join(facts['simd_levels'])})"
    yield f"threads     {facts['threads']}"
    blas_threads = machine["blas_threads"]
    unset = (
        "its threads are not ours to set" if blas_threads is None else f"threads: {blas_threads}"
    )
    yield f"BLAS        {machine['blas']} ({unset})"
    yield f"machine     {machine['key']}"
    yield f"arithmetic  {', '.join(facts['arithmetic'])}"
    yield f"native      {', '.join(facts['native_formats'])}"
    yield f"profile     {facts['profile']}"
    yield f"{'formats':<12}{'p':>4}{'emin':>7}{'emax':>6}{'bits':>6}"
    for fmt in facts["formats"]:
        row = f"{fmt['p']:>4}{fmt['emin']:>7}{fmt['emax']:>6}{fmt['bits']:>6}"
        yield f"  {fmt['name']:<10}{row}"


def table_text(facts: dict[str, Any]) -> Iterator[str]:
    size = "" if facts["n"] is None else ", n = {} to {}".format(*facts["n"])
    yield f"{facts['table']}: {facts['problems']} problems{size}"
    for name, count in facts["features"].items():
        yield f"  feature {name} of {count}"
    for setting in facts["settings"]:
        old = "" if setting["results_version"] == RESULTS_VERSION else ", of an older version"
        yield f"{as_call(setting['algorithm'])}, {setting['arithmetic']} arithmetic{old}"
        yield (
            f"  {setting['outcomes']} outcomes: {setting['problems']} problems, "
            f"{setting['actions']} actions ({', '.join(setting['stages'])})"
        )
        if setting["measurements"]:
            yield f"  {setting['measurements']} timed runs"
        for name, count in setting["statuses"].items():
            yield f"  {count:>8} {name.lower().replace('_', ' ')}"
    for origin in facts["origins"]:
        yield "computed on {node} ({simd}) by roundwise {roundwise}".format(**origin)


def as_call(saved: Any) -> str:
    """Saved settings as one would write them: ``GmresIR(cycles=1, ...)``."""
    if not isinstance(saved, dict):
        return repr(saved)
    settings = [f"{name}={as_call(value)}" for name, value in saved.items() if name != "class"]
    return f"{saved.get('class', '')}({', '.join(settings)})"


if __name__ == "__main__":
    main(prog_name="roundwise")
