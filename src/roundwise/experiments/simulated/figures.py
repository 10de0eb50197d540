"""The figures of a result, through `roundwise.report.figures`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from roundwise.experiments.simulated.gather import Half
from roundwise.experiments.simulated.running import Case, Result
from roundwise.report import Figure, scientific
from roundwise.report import figures as draw

Places = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Indices of systems and of actions."""

SIZE_GROUPS = ((200, "n < 200"), (300, "n = 200 to 299"), (400, "n = 300 to 399"))


def figures(result: Result) -> Iterator[Figure]:
    """All figures of an experiment, drawn as they are asked for."""
    yield training(result)
    yield usage(result)
    yield errors(result)
    yield iterations(result)
    if len(set(result.gathered.first[1].families)) > 1:
        yield kappas(result)
    yield policies(result)
    yield landscape(result)


def training(result: Result) -> Figure:
    curves = {
        label(case): (
            np.array([run.reward for run in case.curves]),
            np.array([run.error for run in case.curves]),
        )
        for case in result.cases
    }
    return Figure(
        f"Mean reward and mean absolute reward prediction error per episode; bands span "
        f"{result.settings.seeds} seeds. Rewards of W1 and W2 are not on one scale.",
        f"{result.experiment.name}-training",
        draw.training_curves(curves),
    )


def usage(result: Result) -> Figure:
    formats = [fmt.name for fmt in result.gathered.space.formats]
    shares = {
        label(case): [
            [float(np.mean(case.usage(name, fmt))) for fmt in formats] for name in result.ranges
        ]
        for case in result.cases
    }
    counts = [r.count for r in result.cases[0].usages[0].ranges if r.name != "all"]
    return Figure(
        "Formats chosen for the test systems, by range of the condition number; mean over seeds.",
        f"{result.experiment.name}-usage",
        draw.usage_by_range(shares, result.ranges, formats, counts),
    )


def errors(result: Result) -> Figure:
    """Under W2, as the paper shows them."""
    ours, fp64, taus = {}, {}, {}
    for case, test, (at, safe) in _under_w2(result):
        ours[label(case)] = test.ferr[at], test.nbe[at]
        fp64[label(case)] = test.ferr[safe], test.nbe[safe]
        taus[label(case)] = case.tau
    test = result.gathered.first[1]
    return Figure(
        "Errors of each test system under W2 (first seed) and in all-FP64, sorted by kappa; a "
        "line leads from FP64's error to the policy's.",
        f"{result.experiment.name}-errors",
        draw.errors_against_fp64(ours, fp64, test.kappas, groups(test), taus),
    )


def iterations(result: Result) -> Figure:
    """Under W2, as the paper shows them."""
    ours = {label(case): test.inner[at] for case, test, (at, _) in _under_w2(result)}
    fp64 = {label(case): test.inner[safe] for case, test, (_, safe) in _under_w2(result)}
    test = result.gathered.first[1]
    return Figure(
        "GMRES iterations of each test system under W2 (first seed) and in all-FP64.",
        f"{result.experiment.name}-iterations",
        draw.iterations_against_fp64(ours, fp64, test.kappas, groups(test)),
    )


def kappas(result: Result) -> Figure:
    halves = result.gathered.first
    families = np.concatenate([half.families for half in halves])
    values = np.concatenate([half.kappas for half in halves])
    return Figure(
        "Condition numbers of each family, training and test systems.",
        f"{result.experiment.name}-kappas",
        draw.kappa_distribution({f: values[families == f] for f in dict.fromkeys(families)}),
    )


def policies(result: Result) -> Figure:
    """The bins are the same in all cases: they follow from the training systems."""
    names = result.gathered.space.names
    grids = {}
    for case in result.cases:
        policy, bins = case.policy, case.policy.discretizer_.bins_
        tried = policy.counts.sum(axis=1).tolist()
        chosen = [names[policy.choose(s)] if tried[s] else None for s in range(len(tried))]
        rows, columns = bins
        grids[label(case)] = [chosen[i * columns : (i + 1) * columns] for i in range(rows)]
    centers = result.cases[0].policy.discretizer_.bin_centers_
    return Figure(
        "What the policy (first seed) takes in each state of the grid that training met.",
        f"{result.experiment.name}-policy",
        draw.policy_map(grids, centers[0], centers[1], names),
    )


def landscape(result: Result) -> Figure:
    """Rewards on the test system with the median condition number."""
    test = result.gathered.first[1]
    system = int(np.argsort(test.kappas, kind="stable")[len(test.kappas) // 2])
    problem = test.problems[system]
    return Figure(
        f"Reward of every action on one test system: n = {problem.n}, kappa = "
        f"{scientific(test.kappas[system], 1)}, the median of the set ({problem.name}).",
        f"{result.experiment.name}-landscape",
        draw.reward_landscape(
            {label(case): case.rewards[system] for case in result.cases},
            result.gathered.space.names,
            chosen={label(case): int(case.chosen[0, system]) for case in result.cases},
        ),
    )


def label(case: Case) -> str:
    return f"{case.weight}, tau = {scientific(case.tau)}"


def groups(half: Half) -> list[str]:
    """What the markers of the systems show: the family where there are several, else the size."""
    if len(set(half.families)) > 1:
        return list(half.families)
    last = f"n >= {SIZE_GROUPS[-1][0]}"
    return [next((text for end, text in SIZE_GROUPS if n < end), last) for n in half.sizes]


def _under_w2(result: Result) -> Iterator[tuple[Case, Half, tuple[Places, Places]]]:
    """The cases of W2, their test halves, and the places of the chosen and of the safe actions."""
    for case in result.cases:
        if case.weight == "W2":
            test = result.gathered.halves[case.tau][1]
            systems = np.arange(len(test.rows))
            safe = np.full_like(systems, result.gathered.space.safe)
            yield case, test, ((systems, case.chosen[0]), (systems, safe))
