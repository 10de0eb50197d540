"""``roundwise compare``: this machine, `roundwise.solve` beside NumPy's or SciPy's."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from roundwise._lazy import require
from roundwise.algorithms.accuracy import backward_errors
from roundwise.commands import options
from roundwise.commands.outputs import (
    Interrupted,
    data_errors,
    echo,
    keep,
    replacing,
    system_load,
    told_of_load,
    writable_file,
)
from roundwise.commands.systems import FileSystem
from roundwise.exceptions import IllConditionedWarning
from roundwise.machine.identity import Machine
from roundwise.machine.threads import get_num_threads
from roundwise.solver import solve

SIZES = (100, 250, 500, 1000, 2000, 4000)
ROUNDS, ENOUGH = 7, 1.0
"""Rounds, and the seconds that many short ones go on for: other programs disturb some of them."""

LONG = 0.1
"""Seconds of a run that is not repeated at once."""

LINE = "{:<16} {:>7} {:>10} {:>10} {:>13} {:>15} {:>9}  {}"

NOTE = (
    "Both take turns, and the best run of each counts. Errors are backward errors; every answer of "
    "Roundwise passed its gate."
)


@dataclass(frozen=True)
class Comparison:
    """Seconds and backward errors of one system, solved both ways."""

    system: str
    n: int
    peer: str
    action: str
    peer_seconds: float
    seconds: float
    peer_backward_error: float
    backward_error: float
    runs: int

    @property
    def times_faster(self) -> float:
        return self.peer_seconds / self.seconds


def figure_file(path: Path) -> Path:
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{path.name} is no figure; choose a name in .png, .svg or .pdf")
    return writable_file(path)


def checked_seconds(seconds: float) -> float:
    if not seconds > 0:
        raise ValueError(f"{seconds}; pass a time above 0")
    return seconds


@click.command("compare")
@click.argument("matrix", metavar="[A.mtx]", type=options.EXISTING_FILE, required=False)
@click.argument("rhs", metavar="[b.mtx]", type=options.EXISTING_FILE, required=False)
@options.output("File to draw the comparison to.", "FIGURE.png|svg|pdf", check=figure_file)
@options.valued(
    "--sizes",
    click.IntRange(min=1),
    "A size of a random system; repeat it for more.  "
    f"[default: {', '.join(map(str, SIZES))}, as far as time allows]",
    metavar="N",
    multiple=True,
)
@options.valued(
    "--seconds",
    click.FLOAT,
    "No run starts after that time.",
    default=30.0,
    metavar="S",
    check=checked_seconds,
)
@options.as_json()
def compare_command(
    matrix: Path | None,
    rhs: Path | None,
    out: Path | None,
    sizes: Sequence[int],
    seconds: float,
    as_json: bool,
) -> None:
    """Time roundwise.solve on this machine, beside NumPy.

    The system is that of a Matrix Market file; a sparse one is compared with
    scipy.sparse.linalg.spsolve. Without a file, random dense systems of several sizes are solved.
    A run that has begun is not broken off: a huge matrix may take longer than --seconds.

    \b
    Examples
      roundwise compare
      roundwise compare A.mtx -o comparison.png
      roundwise compare --sizes 300 --sizes 3000 --json
    """
    keep([matrix, rhs], out=out)
    load = system_load()
    if matrix is not None and sizes:
        raise click.UsageError("--sizes is for random systems; leave it out for a file")
    if out is not None:
        require("matplotlib", "plot")  # before minutes are spent
    if matrix is None:
        coming = random_comparisons(sizes, seconds)
    else:
        with data_errors():
            system = FileSystem.read(matrix, rhs)
        named = (system.name, system.A, system.B[:, 0], seconds)
        coming = (compared(*given) for given in [named])
    found: list[Comparison] = []
    interrupted = False
    try:
        for one in coming:
            found.append(one)
            if not as_json:
                click.echo("\n".join([*(heading(one) if len(found) == 1 else []), row(one)]))
    except KeyboardInterrupt:
        interrupted = True
    if out is not None and found:
        with replacing(out) as written:
            draw(found, written)
    facts = {
        "machine": Machine.this().to_dict() | {"threads": get_num_threads()},
        "comparisons": [asdict(one) | {"times_faster": one.times_faster} for one in found],
        "figure": str(out) if out is not None and found else None,
    }
    if found:
        figure = [] if out is None else [f"The figure is in {out}."]
        echo(facts, ["", NOTE, *figure, *busy(load)], as_json)
    if interrupted:
        raise Interrupted(f"interrupted; {len(found)} comparisons are finished")


def random_comparisons(sizes: Sequence[int], seconds: float) -> Iterator[Comparison]:
    """Gaussian matrices; sizes that would take longer than is left are passed over."""
    end, last = time.monotonic() + seconds, None
    wanted = sorted(sizes or SIZES)
    for place, n in enumerate(wanted):
        left = end - time.monotonic()
        if last is not None and not sizes:
            expected = (n / last.n) ** 3 * (last.seconds + last.peer_seconds)
            if expected > left / 2:
                return
        rng = np.random.default_rng(n)
        A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
        last = compared("Gaussian", A, b, left / (len(wanted) - place))
        yield last


def compared(name: str, A: Any, b: Any, seconds: float) -> Comparison:
    """Solve both ways in turn, once at least, until time is up; the best run of each counts."""
    start = time.monotonic()
    is_sparse = sparse.issparse(A)
    A = A.tocsc() if is_sparse else A
    peer: Callable[..., Any] = spsolve if is_sparse else np.linalg.solve
    peer_name = "scipy.sparse.linalg.spsolve" if is_sparse else "numpy.linalg.solve"
    with warnings.catch_warnings():
        # The table shows the errors; a warning for every run would say no more.
        warnings.simplefilter("ignore", IllConditionedWarning)
        solution = solve(A, b, full_output=True)
        times: list[tuple[float, float]] = []
        while not times or (
            time.monotonic() < start + seconds
            and (len(times) < ROUNDS or time.monotonic() < start + ENOUGH)
        ):
            own, _ = timed(solve, A, b)
            try:
                other, x = timed(peer, A, b)
            except np.linalg.LinAlgError as error:
                raise click.ClickException(
                    f"{peer_name} does not solve {name} ({error}), so there is nothing to compare "
                    "with; use roundwise solve"
                ) from error
            times.append((own, other))
    best, best_peer = np.min(times, axis=0)
    norm = float(abs(A).sum(axis=1).max())
    sizes = (float(np.max(np.abs(v))) for v in (b - A @ x, x, b))
    residual, x_norm, b_norm = sizes
    return Comparison(
        system=name,
        n=A.shape[0],
        peer=peer_name,
        action=solution.action,
        peer_seconds=float(best_peer),
        seconds=float(best),
        peer_backward_error=float(backward_errors(residual, norm, x_norm, b_norm)),
        backward_error=solution.backward_error,
        runs=len(times),
    )


def timed(run: Callable[..., Any], A: Any, b: Any) -> tuple[float, Any]:
    """The shorter of two runs in a row, and x.

    Threads that the other way has left waiting actively may slow down the first; a long run does
    not notice them.
    """
    start = time.perf_counter()
    x = run(A, b)
    first = time.perf_counter() - start
    if first > LONG:
        return first, x
    start = time.perf_counter()
    run(A, b)
    return min(first, time.perf_counter() - start), x


def draw(found: Sequence[Comparison], path: Path) -> None:
    """A bar for each system: how many times faster than the peer."""
    from matplotlib.figure import Figure  # not pyplot, which would want a display

    figure = Figure(figsize=(7.0, 1.0 + 0.4 * len(found)), layout="constrained")
    ax, ratios = figure.subplots(), [one.times_faster for one in found]
    colors = ["C0" if ratio >= 1 else "C1" for ratio in ratios]
    bars = ax.barh(range(len(found)), ratios, color=colors)
    ax.set_yticks(range(len(found)), [f"{one.system}, n = {one.n}" for one in found])
    ax.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=3)
    ax.axvline(1.0, color="black", linewidth=1.0)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12 * max(1.0, *ratios))
    ax.set(xlabel=f"times faster than {found[0].peer}", title="roundwise.solve on this machine")
    figure.savefig(path, dpi=150)


def busy(load: float) -> Iterator[str]:
    """A caution if others used the machine: BLAS waits for threads that do not get a core."""
    if told := told_of_load(load):
        yield f"{told}: these times say little; compare again on an idle machine."


def heading(first: Comparison) -> Iterator[str]:
    """The lines above the first row."""
    machine = Machine.this()
    yield f"{machine.cpu}, {get_num_threads()} threads, {machine.blas}, NumPy {version('numpy')}"
    yield ""
    yield f"roundwise.solve beside {first.peer}; times in milliseconds"
    yield ""
    other = "spsolve" if "sparse" in first.peer else "NumPy"
    names = "system", "n", other, "Roundwise", "times faster", f"error, {other}", "error", "factors"
    yield LINE.format(*names)
    yield LINE.format(*("-" * len(name) for name in names))


def row(one: Comparison) -> str:
    """One comparison, printed as soon as it is made."""
    numbers = 1e3 * one.peer_seconds, 1e3 * one.seconds, one.times_faster
    errors = one.peer_backward_error, one.backward_error
    texts = (f"{number:.3g}" for number in (*numbers, *errors))
    return LINE.format(one.system, one.n, *texts, one.action.partition("-")[0])
