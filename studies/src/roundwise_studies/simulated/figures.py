"""The figures of a result, through `roundwise_studies.report.figures`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from roundwise_studies.report import Figure, scientific
from roundwise_studies.report import figures as draw
from roundwise_studies.simulated.gather import Half
from roundwise_studies.simulated.running import Case, Result

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
        case.label: (
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
        case.label: [[case.metric(name, fmt).mean for fmt in formats] for name in result.ranges]
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
    ours, fp64, taus, safe = {}, {}, {}, result.gathered.space.safe
    for case, test, at in _under_w2(result):
        ours[case.label] = test.ferr[at], test.nbe[at]
        fp64[case.label] = test.ferr[:, safe], test.nbe[:, safe]
        taus[case.label] = case.tau
    test = result.gathered.first[1]
    return Figure(
        "Errors of each test system under W2 (first seed) and in all-FP64, sorted by kappa; a "
        "line leads from FP64's error to the policy's.",
        f"{result.experiment.name}-errors",
        draw.errors_against_fp64(ours, fp64, test.kappas, groups(test), taus),
    )


def iterations(result: Result) -> Figure:
    """Under W2, as the paper shows them."""
    ours, fp64, safe = {}, {}, result.gathered.space.safe
    for case, test, at in _under_w2(result):
        ours[case.label], fp64[case.label] = test.inner[at], test.inner[:, safe]
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
    names, grids = result.gathered.space.names, {}
    for case in result.cases:
        policy, (rows, columns) = case.policy, case.policy.discretizer_.bins_
        tried = policy.counts.sum(axis=1).tolist()
        chosen = [names[policy.choose(s)] if tried[s] else None for s in range(len(tried))]
        grids[case.label] = [chosen[i * columns : (i + 1) * columns] for i in range(rows)]
    x, y = result.cases[0].policy.discretizer_.bin_centers_
    return Figure(
        "What the policy (first seed) takes in each state of the grid that training met.",
        f"{result.experiment.name}-policy",
        draw.policy_map(grids, x, y, names),
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
            {case.label: case.rewards[system] for case in result.cases},
            result.gathered.space.names,
            chosen={case.label: int(case.chosen[0, system]) for case in result.cases},
        ),
    )


def groups(half: Half) -> list[str]:
    """What the markers of the systems show: the family where there are several, else the size."""
    if len(set(half.families)) > 1:
        return list(half.families)
    last = f"n >= {SIZE_GROUPS[-1][0]}"
    return [next((text for end, text in SIZE_GROUPS if n < end), last) for n in half.sizes]


def _under_w2(result: Result) -> Iterator[tuple[Case, Half, tuple[Any, Any]]]:
    """The cases of W2, their test halves, and the indices (system, action) of what they chose."""
    for case in result.cases:
        if case.weight == "W2":
            test = result.gathered.halves[case.tau][1]
            yield case, test, (np.arange(len(test.rows)), case.chosen[0])
