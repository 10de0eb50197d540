"""A stream of systems that changes its character, solved by a learning `Solver` and by others.

300 benign systems (Gaussian) are followed by 300 for which low precision does not suffice: a tenth
of their columns depends on the others up to 1e-10. What a policy can see cheaply is the same for
both, so the change must be learned. Every contender solves every system in this process, in turn;
the oracle takes, for each system, the fixed format that was fastest on it.

Run on an idle machine: ``python benchmarks/bench_learning.py``. Prints a table and how many solves
it took to adapt, and writes them to out/, with the times of all solves and a figure;
``make learning-docs`` puts them into docs/how-it-decides.md.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from timing import PAUSE as REST
from timing import median_seconds
from tqdm import tqdm

import roundwise as rw
from roundwise.backends import native_formats
from roundwise.machine.identity import Machine
from roundwise.policies import OnlinePolicy
from roundwise_studies.report import Table, format_text, write_csv

OUT = Path("out")
PAUSE = 0.03  # seconds between solves, all in SciPy's BLAS
SETTLED = 10
STYLES = {
    "default policy": ("C4", 1.2, "--"),
    "learning": ("C3", 2.5, "-"),
    "oracle": ("k", 1.5, ":"),
}


def system(i: int, change: int, sizes: tuple[int, int]) -> tuple[Any, Any]:
    rng = np.random.default_rng((7, i))
    n = int(rng.integers(sizes[0], sizes[1] + 1))
    A = rng.standard_normal((n, n))
    if i >= change:
        k = n // 10
        A[:, :k] = A[:, k:] @ rng.standard_normal((n - k, k)) / np.sqrt(n)
        A[:, :k] += 1e-10 * rng.standard_normal((n, k))
        A = A[:, rng.permutation(n)]
    return A, rng.standard_normal(n)


def run(
    count: int, sizes: tuple[int, int], repeats: int
) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds of each contender for each system, and the formats that the Solver started in."""
    fixed = [fmt.name for fmt in native_formats() if fmt.name in ("bf16", "fp32", "fp64")]
    solver, starts = rw.Solver(), list[str]()
    decide = OnlinePolicy.decide

    def noted(self: OnlinePolicy, *arguments: Any) -> Any:
        decision = decide(self, *arguments)
        starts.append(self.space[decision.first][0].name)
        return decision

    OnlinePolicy.decide = noted  # type: ignore[method-assign]
    seconds: dict[str, list[float]] = {}
    for i in tqdm(range(2 * count), desc="learning", dynamic_ncols=True):
        A, b = system(i, count, sizes)
        time.sleep(REST)  # NumPy's BLAS has made the system; the solves use SciPy's
        calls: dict[str, Callable[[], object]] = {
            f"always {fmt}": lambda A=A, b=b, fmt=fmt: rw.solve(A, b, policy=fmt) for fmt in fixed
        }
        calls["default policy"] = lambda A=A, b=b: rw.solve(A, b)
        calls["learning"] = lambda A=A, b=b: solver.solve(A, b)
        for name, call in calls.items():
            (taken,) = median_seconds(1 if name == "learning" else repeats, call, pause=PAUSE)
            seconds.setdefault(name, []).append(taken)
    OnlinePolicy.decide = decide  # type: ignore[method-assign]
    if len(starts) != 2 * count:
        raise SystemExit("some systems are too small to learn from; choose larger --sizes")
    formats = [seconds[f"always {fmt}"] for fmt in fixed]
    seconds["oracle"] = [min(times) for times in zip(*formats, strict=True)]
    print(solver.summary())
    return seconds, starts


def adapted_after(starts: list[str], best: str) -> int | None:
    """Solves until `best` is the first format in nine of the next ten."""
    for i in range(len(starts) - SETTLED + 1):
        if starts[i] == best and starts[i : i + SETTLED].count(best) >= 0.9 * SETTLED:
            return i
    return None


def draw(seconds: dict[str, list[float]], starts: list[str], path: Path) -> None:
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(8, 6), sharex=True, height_ratios=(3, 1), constrained_layout=True
    )
    for name, times in seconds.items():
        style = STYLES.get(name)
        color, width, line = style or (None, 1.2, "-")
        upper.plot(np.cumsum(times), label=name, color=color, linewidth=width, linestyle=line)
    upper.axvline(len(starts) / 2, color="0.7")
    upper.set_ylabel("total time (s)")
    upper.legend()
    names = sorted(set(starts), key=["bf16", "fp32", "fp64"].index)
    lower.plot([names.index(first) for first in starts], ".", color="C3", markersize=3)
    lower.set_yticks(range(len(names)), names)
    lower.set_ylabel("learning: first format")
    lower.set_xlabel("systems, in turn: benign, then hard")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="systems of each kind")
    parser.add_argument("--sizes", type=int, nargs=2, default=(1000, 1200))
    parser.add_argument("--repeats", type=int, default=3, help="of all but the learning Solver")
    asked = parser.parse_args()
    seconds, starts = run(asked.count, tuple(asked.sizes), asked.repeats)
    OUT.mkdir(exist_ok=True)
    with (OUT / "learning.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*seconds, "learning: first format"])
        writer.writerows(zip(*seconds.values(), starts, strict=True))
    draw(seconds, starts, OUT / "learning.png")
    print(Machine.this())
    made = table(seconds, asked.count)
    write_csv(made, OUT / "learning-summary.csv")
    verdicts = [verdict(*case) for case in parts(seconds, starts, asked.count)]
    (OUT / "learning.txt").write_text("\n".join(verdicts) + "\n", encoding="utf-8")
    print(format_text(made), *verdicts, sep="\n")


def table(seconds: dict[str, list[float]], count: int) -> Table:
    oracle = sum(seconds["oracle"])
    rows = []
    for name, times in seconds.items():
        benign, hard = sum(times[:count]), sum(times[count:])
        rows.append([name, benign, hard, benign + hard, (benign + hard) / oracle])
    head = ["contender", "benign (s)", "hard (s)", "all (s)", "over the oracle"]
    formats = dict.fromkeys(head[1:4], ".2f") | {head[4]: ".3f"}
    return Table("Seconds, in total", head, rows, formats=formats)


def parts(
    seconds: dict[str, list[float]], starts: list[str], count: int
) -> Iterator[tuple[str, str, list[str]]]:
    """Each half of the stream: its name, the format that is fastest there, and the starts."""
    fixed = {name: times for name, times in seconds.items() if name.startswith("always")}
    for name, part in (("benign", slice(count)), ("hard", slice(count, None))):
        yield name, min(fixed, key=lambda f: sum(fixed[f][part])).split()[1], starts[part]


def verdict(stream: str, best: str, starts: list[str]) -> str:
    after = adapted_after(starts, best)
    told = "did not settle on it" if after is None else f"settled on it after {after} solves"
    return f"- {stream}: {best} first is fastest; the learning Solver {told}."


if __name__ == "__main__":
    main()
