"""Prices of sparse methods and how well they choose: measure, fit, compare, write.

``python -m roundwise_studies.default_policy.sparse_methods --matrices FOLDER`` (part of ``make
default-policy``) measures every method that is installed (see `sparse_times`; an interrupted run
is resumed), fits `SparsePrices`, prints how well the policy chooses with prices that were fitted
without the family of the system, and writes the prices into the package, the table beside this
file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from roundwise.actions import Action
from roundwise.algorithms import VerifiedSolve
from roundwise.backends import NativeBackend
from roundwise.costs import Shape
from roundwise.costs.prices import Prices, SparsePrices, generic_prices
from roundwise.costs.sparse_calibration import SYSTEMS, timed_methods
from roundwise.formats import FP32, FP64
from roundwise.machine.identity import Machine
from roundwise.machine.rates import FILE, write_rates
from roundwise.methods import AMOUNTS, METHODS, SAFE, SAME_PRICE, amounts
from roundwise.outcomes import progress_bar
from roundwise.policies import NeighbourPolicy, shipped_facts
from roundwise_studies.default_policy.sparse_times import (
    OWN,
    Timed,
    clock,
    gather,
    least,
    sparse_systems,
)
from roundwise_studies.evaluation.tables import mean_interval
from roundwise_studies.report import Table, format_text

ROUNDS = 10
FEWEST = 8
"""A method that fits fewer systems than that has no price, and is never chosen."""

LARGE = 2_000
"""Systems from this n on count again by themselves: smaller ones take little time anyway."""

NINE_OF_TEN = 90
POLICY, ASKED = "the policy, in a plain solve", "the policy, asked about every system"
UNPAID, ORACLE = "the policy, its look not counted", "oracle"
ORACLE_AT_ONCE = "oracle, the attempt at once included"
BACKEND, ALGORITHM = NativeBackend(), VerifiedSolve()
Floats = NDArray[np.float64]
Chooser = Callable[[Timed], str]
"""From a system to the ``method:format`` that is tried first."""


def shape_of(row: Timed) -> Shape:
    return row.seen.shape()


def fitted(rows: Sequence[Timed], source: str = "") -> SparsePrices:
    """Nonnegative least squares, FP64 no cheaper than FP32, on systems whose work was counted."""
    rows = [row for row in rows if row.features["factor_flops"] > 0]
    factor: dict[str, dict[str, list[float]]] = {}
    solve: dict[str, dict[str, float]] = {}
    spread: dict[str, float] = {}
    for method in (m for m in METHODS.values() if m.sparse):
        names = {fmt.name: f"{method.name}:{fmt}" for fmt in method.formats}
        cases = [
            (fmt, row, row.attempts[name])
            for fmt, name in names.items()
            for row in rows
            if name in row.attempts and row.attempts[name].solve > 0
        ]
        if len({row.name for _, row, _ in cases}) < FEWEST:
            continue
        system = []
        for fmt, row, _ in cases:
            counted = np.array(amounts(shape_of(row), method.name))
            more = counted if fmt == FP64.name else np.zeros(len(AMOUNTS))
            system.append(np.concatenate([counted, more]))
        seconds = np.array([attempt.factor for *_, attempt in cases])
        prices, ratios = least_logarithms(np.array(system), seconds)
        spread[method.name] = float(np.exp(np.percentile(np.abs(np.log(ratios)), NINE_OF_TEN)))
        # Few systems that take far longer than fitted make a method dear: the mean ratio counts.
        low, more = np.split(prices * max(1.0, ratios.mean()), 2)
        numbers = {FP32.name: low.tolist(), FP64.name: (low + more).tolist()}
        factor[method.name] = {fmt: numbers[fmt] for fmt in names}
        solve[method.name] = {
            fmt: median(a.solve / shape_of(row).filled for f, row, a in cases if f == fmt)
            for fmt in names
        }
    for name, like in SAME_PRICE.items():
        if like in factor:
            factor[name], solve[name], spread[name] = factor[like], solve[like], spread[like]
    matvec = median(row.matvec / row.features["entries"] for row in rows)
    return SparsePrices(factor, solve, matvec, CONVERSION, spread, source)


def completed(prices: SparsePrices) -> SparsePrices:
    """With those that ship so far for the methods that were not measured, or on too few systems."""
    before = generic_prices().sparse
    kept = [name for name in before.factor if name not in prices.factor]
    source = f"{prices.source}; as before: {', '.join(kept)}" if kept else prices.source
    return replace(
        prices,
        factor=prices.factor | {name: before.factor[name] for name in kept},
        solve=prices.solve | {name: before.solve[name] for name in kept},
        spread=prices.spread | {name: s for name, s in before.spread.items() if name in kept},
        source=source,
    )


def reference_times() -> dict[str, dict[str, dict[str, list[float]]]]:
    """What `roundwise calibrate` will compare other machines with."""
    return {
        name: {
            method: {fmt: list(seconds) for fmt, seconds in formats.items()}
            for method, formats in timed_methods(make(), BACKEND, least).methods.items()
        }
        for name, make in SYSTEMS.items()
    }


def least_logarithms(system: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Nonnegative prices with small logarithms of measured over fitted seconds, and these ratios.

    Differences are weighed by the geometric mean of what was measured and what was fitted before,
    a few times over: twice too much counts as half too little.
    """
    weights = seconds
    for _ in range(ROUNDS):
        prices = nnls(system / weights[:, None], seconds / weights)[0]
        weights = np.sqrt(seconds * np.maximum(system @ prices, 1e-2 * seconds))
    return prices, seconds / np.maximum(system @ prices, 1e-2 * seconds)


CONVERSION = 2e-9
"""Seconds per entry of L to convert FP32 factors to FP64: reading and writing 12 bytes."""


def climb_seconds(row: Timed, first: str) -> float:
    """Seconds from this start on, features known; infinite if no measured rung passes the gate."""
    method, fmt = first.split(":")
    total = 0.0
    for rung in ALGORITHM.climb(Action.parse(f"{method}:{fmt}-fp64-fp64-fp64"), BACKEND, True):
        attempt = row.attempts.get(f"{rung.method}:{rung[0]}")
        if attempt is None:
            continue
        total += attempt.seconds(row.matvec)
        if attempt.met:
            return total
    return float("inf")


def alone(row: Timed, first: str) -> float:
    """The same for one who looks at nothing: our own engines then find their order themselves."""
    attempt = row.attempts[first]
    return climb_seconds(row, first) + attempt.alone - attempt.factor


def plain_seconds(row: Timed, chosen: str) -> float:
    """Of a plain `solve`, which looks and chooses only if it is not done at once."""
    if row.met_at_once:
        return row.at_once
    return row.at_once + row.look + row.counting_then + climb_seconds(row, chosen)


def best_seconds(row: Timed) -> float:
    """Of whatever is fastest in hindsight: a method without a look, or the attempt at once."""
    best = min(alone(row, name) for name in row.attempts)
    return min(best, row.at_once) if row.met_at_once else best


def policy_chooser(prices: Prices) -> Chooser:
    policy = NeighbourPolicy(shipped_facts(), prices)
    policy.start(np.empty((0, 1)), ALGORITHM.starts([True]))

    def choose(row: Timed) -> str:
        ranking = policy.rank(row.seen)
        action = policy.space[ranking.first]
        return f"{action.method}:{action[0]}"

    return choose


def linearsolve_rule(row: Timed) -> str:
    """LinearSolve.jl's: KLU for small and very sparse systems, UMFPACK for all others.

    Small is n <= 10 000, very sparse a density below 2e-4 (``defaultalg`` for a SparseMatrixCSC in
    its LinearSolveSparseArraysExt). Where the one it names was not measured, the nearest that was
    stands for it, see `nearest`.
    """
    n, entries = row.features["n"], row.features["entries"]
    very_sparse = n <= 10_000 and entries / n**2 < 2e-4
    return nearest(row, "klu/amd:fp64" if very_sparse else "umfpack/amd:fp64")


def nearest(row: Timed, wanted: str) -> str:
    """SuperLU stands for KLU and UMFPACK: it is the LU with row exchanges that everyone has.

    In minimum degree's order where it fits, as both order A + A' where the pattern is nearly
    symmetric, else in COLAMD's.
    """
    names = (wanted, "superlu/mmd:fp64", f"{SAFE}:fp64")
    return next(name for name in names if name in row.attempts)


def best_fixed(rows: Sequence[Timed]) -> str:
    """The start that fits all systems with the least mean regret."""
    names = [
        f"{m.name}:{f}" for m in METHODS.values() if m.sparse and not m.needs for f in m.formats
    ]
    common = [name for name in names if all(name in row.attempts for row in rows)]
    return min(common, key=lambda name: sum(np.log(alone(row, name)) for row in rows))


DEFAULT = (*OWN, "superlu")
"""The engines that every installation has."""


def restricted(row: Timed) -> Timed:
    """As if nothing but the default were installed."""
    attempts = {k: a for k, a in row.attempts.items() if k.split("/")[0] in DEFAULT}
    return replace(row, attempts=attempts)


def comparison(rows: Sequence[Timed], files: Collection[str] = ()) -> Table:
    """In the default installation and, if more engines were measured, with these.

    `files` names the systems of applications, which count again by themselves: what we make up
    resembles what prices are fitted on, even without its family.
    """
    table = compare([restricted(row) for row in rows], "default engines", files)
    extras = {k.split("/")[0] for row in rows for k in row.attempts} - set(DEFAULT)
    if not extras:
        return table
    more = compare(rows, f"with {', '.join(sorted(extras))}", files)
    return replace(table, rows=[*table.rows, *more.rows])


def compare(rows: Sequence[Timed], engines: str, files: Collection[str] = ()) -> Table:
    """Each way to choose, on systems whose family it was not fitted on."""
    generic = generic_prices()
    rows = [row for row in rows if np.isfinite(climb_seconds(row, f"{SAFE}:fp64"))]
    choices: dict[str, dict[str, str]] = {}
    for family in sorted({row.family for row in rows}):
        others = [row for row in rows if row.family != family]
        ways: dict[str, Chooser] = {
            POLICY: policy_chooser(replace(generic, sparse=fitted(others))),
            "always SuperLU (COLAMD, FP64)": lambda row: f"{SAFE}:fp64",
        }
        fixed = best_fixed(others)
        ways["best fixed method"] = lambda row, fixed=fixed: fixed  # type: ignore[misc]
        ways["LinearSolve.jl's rule"] = linearsolve_rule
        for name, way in ways.items():
            for row in (row for row in rows if row.family == family):
                choices.setdefault(name, {})[row.name] = way(row)
    choices[ASKED] = choices[UNPAID] = choices[POLICY]
    choices[ORACLE] = choices[ORACLE_AT_ONCE] = {
        row.name: min(row.attempts, key=lambda name, row=row: alone(row, name))  # type: ignore[misc]
        for row in rows
    }
    table = []
    large = [row for row in rows if row.features["n"] >= LARGE]
    given = [row for row in large if row.name in files]
    groups = {"all": rows, f"n >= {LARGE}": large, f"applications, n >= {LARGE}": given}
    for size, members in groups.items():
        if not members:
            continue
        group = f"{engines}, {size}"
        best = {row.name: alone(row, choices[ORACLE][row.name]) for row in members}
        table += [_judged(group, name, chosen, members, best) for name, chosen in choices.items()]
    columns = ("systems", "chosen by", "count", "time over the best", "worst", "speed, worst")
    caption = (
        "Sparse systems: time over that of the best method in hindsight (geometric mean with a "
        "95 % interval, worst), and over SuperLU's (worst speed). Prices were fitted without the "
        "system's family. A plain solve tries to do without a look; the policy pays for its look "
        "at the system. One row shows what its choices take without."
    )
    return Table(caption, columns, table)


def _judged(
    group: str,
    name: str,
    chosen: Mapping[str, str],
    rows: Sequence[Timed],
    best: Mapping[str, float],
) -> tuple[str, ...]:
    if name == POLICY:
        seconds = [plain_seconds(row, chosen[row.name]) for row in rows]
    elif name == ASKED:
        seconds = [climb_seconds(r, chosen[r.name]) + r.look + r.counting for r in rows]
    elif name == ORACLE_AT_ONCE:
        seconds = [best_seconds(row) for row in rows]
    else:
        seconds = [alone(row, chosen[row.name]) for row in rows]
    ratios = np.array([s / best[row.name] for s, row in zip(seconds, rows, strict=True)])
    safe = [alone(row, f"{SAFE}:fp64") for row in rows]
    mean = mean_interval(np.log(ratios), np.random.default_rng(0))
    value, low, high = (f"{np.exp(x):.2f}" for x in (mean.value, mean.low, mean.high))
    speed = min(a / b for a, b in zip(safe, seconds, strict=True))
    return (
        group,
        name,
        str(len(rows)),
        f"{value} [{low}, {high}]",
        f"{ratios.max():.2f}",
        f"{speed:.2f}",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Price the sparse methods.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--matrices", type=Path, help="a folder of Matrix Market files to include")
    parser.add_argument("--every", type=int, default=1, help="take only every n-th system")
    parser.add_argument("--times", type=Path, default=Path("out/sparse_times.jsonl"))
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args(arguments)
    systems = list(sparse_systems(asked.seed, asked.matrices, asked.every))
    rows = gather(systems, asked.times, progress_bar("timing sparse methods"))
    table = comparison(rows, {system.name for system in systems if system.family == "file"})
    print(format_text(table))
    source = (
        f"{len(rows)} systems, {clock()[1]}, on {Machine.this()}; "
        f"methods: {', '.join(sorted({name.split(':')[0] for r in rows for name in r.attempts}))}"
    )
    sparse = replace(completed(fitted(rows, source)), reference=reference_times())
    prices = replace(generic_prices(), sparse=sparse)
    write_rates("cpu", prices.to_dict(), asked.out)
    text = {
        "columns": list(table.header),
        "rows": [list(row) for row in table.rows],
        "source": source,
    }
    COMPARED.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


COMPARED = Path(__file__).with_name("sparse_methods.json")
"""The last comparison, for the docs."""


if __name__ == "__main__":
    np.seterr(all="ignore")  # singular and huge systems are part of the gallery
    main()
