"""The study of the paper's simulated experiments: its steps, and the sentences of its report."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from roundwise.machine.threads import get_simd_level
from roundwise_studies.departures import EVERYWHERE, OF_DATA
from roundwise_studies.protocol import Bars, Part, Study, caution, is_quick, no_bars
from roundwise_studies.report import Finding, Report, scientific
from roundwise_studies.simulated import numbers
from roundwise_studies.simulated.experiment import ABOUT, EXPERIMENTS, Settings
from roundwise_studies.simulated.figures import figures
from roundwise_studies.simulated.findings import check
from roundwise_studies.simulated.gather import Runs, SimulatedGathered, fp64_ferr_draws, gather
from roundwise_studies.simulated.running import Result, run
from roundwise_studies.simulated.tables import all_tables
from roundwise_studies.tabulating import flat_tables, plain_rows
from roundwise_studies.writing import provenance


@dataclass(frozen=True)
class SimulatedStudy(Study[dict[str, SimulatedGathered], dict[str, Result]]):
    """Experiments by name; outcomes are kept in ``<data set>.sqlite``, one table per data set.

    With `replay` nothing is solved; what the cache lacks is an error.
    """

    name: ClassVar[str] = "reproduce"

    settings: Settings = field(default_factory=Settings)
    experiments: tuple[str, ...] = tuple(EXPERIMENTS)
    replay: bool = False

    def gather(
        self, cache: Path, jobs: int | None = None, bars: Bars = no_bars
    ) -> dict[str, SimulatedGathered]:
        found: dict[str, SimulatedGathered] = {}
        for name in self.experiments:
            data = EXPERIMENTS[name].data
            if data not in found:
                runs = Runs(data, self.settings.arithmetic, data)
                found[data] = gather(runs, self.settings, cache, jobs, bars, self.replay)
            if EXPERIMENTS[name].heavy_tailed:
                bar = bars(f"{name}, other draws")
                draws = fp64_ferr_draws(data, self.settings, cache, jobs, bar, self.replay)
                found[data] = replace(found[data], draws=draws)
        return found

    def run(
        self, gathered: Mapping[str, SimulatedGathered], bars: Bars = no_bars
    ) -> dict[str, Result]:
        found = {}
        for name in self.experiments:
            outcomes = gathered[EXPERIMENTS[name].data]
            found[name] = run(EXPERIMENTS[name], self.settings, outcomes, bars(f"{name}, learning"))
        return found

    def tabulate(self, result: Mapping[str, Result]) -> list[Part]:
        parts = []
        for name, each in result.items():
            flat = {
                "performance": numbers.performance(each),
                "usage": numbers.usage(each),
                "families": numbers.families(each),
                "data": numbers.data(each),
                "regret": numbers.regrets(each),
            }
            tables, rows, drawn = all_tables(each), flat_tables(flat), partial(figures, each)
            parts.append(Part(name, each.experiment.title, ABOUT[name], tables, rows, drawn))
        return parts

    def report(self, result: Mapping[str, Result]) -> Report:
        settings = self.settings
        findings = [] if is_quick(settings.systems, settings.seeds) else check(result)
        sets = [OF_DATA[each.experiment.data] for each in result.values()]
        return Report(
            "Precision autotuning by contextual bandits: the paper's simulated experiments, again",
            _overview(self.settings, result, findings),
            findings,
            settings=describe(self.settings),
            provenance=emulated_provenance(result.values()),
            departures=list(dict.fromkeys(chain(EVERYWHERE, *sets))),
        )

    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        return {
            "findings": [asdict(finding) for finding in report.findings],
            "experiments": {part.name: plain_rows(part.numbers) for part in parts},
        }


def _overview(
    settings: Settings, results: Mapping[str, Result], findings: Sequence[Finding]
) -> list[str]:
    lines = [
        f"Carson & Chen's experiments ({', '.join(results)}) with {settings.systems} training and "
        f"{settings.systems} test systems, {settings.seeds} trainings each, {settings.actions} "
        f"actions, {settings.arithmetic} arithmetic."
    ]
    lines = caution(settings, settings.systems, settings.seeds) + lines
    titles = {
        "confirmed": "Confirmed",
        "partly": "Partly true",
        "not reproduced": "Not reproduced from the text",
    }
    for verdict, title in titles.items():
        if claims := [finding.claim for finding in findings if finding.verdict == verdict]:
            lines.append(f"{title} ({len(claims)}): {'; '.join(claims)}.")
    return lines + [_reward_sentence(result) for result in results.values()]


def _reward_sentence(result: Result) -> str:
    """Whether learning beat the choice of all-FP64 for every system, under the paper's reward."""
    gains = [-case.regrets[f"RL({case.weight})"].fp64.value for case in result.cases]
    best = [case.regrets["all-FP64"].oracle.value for case in result.cases]
    ahead = sum(gain > 0 for gain in gains)
    return (
        f"{result.experiment.title}: the learned policy earns more reward than all-FP64 in {ahead} "
        f"of {len(gains)} cases (difference {min(gains):.2g} to {max(gains):.2g}); knowing every "
        f"outcome would earn {min(best):.2g} to {max(best):.2g} more than all-FP64."
    )


def describe(settings: Settings) -> dict[str, object]:
    """The settings in words."""
    return {
        "systems": f"{settings.systems} training, {settings.systems} test",
        "sizes": f"{settings.sizes[0]} to {settings.sizes[1]}",
        "tau": [scientific(tau) for tau in settings.taus],
        "weights (w1, w2)": "W1 = (1, 0.1), W2 = (1, 1)",
        "formats": "bf16, tf32, fp32, fp64",
        "actions": f"the highest {settings.actions} of 35 monotone ones",
        "policy": f"tabular Q, alpha = {settings.alpha:g}, epsilon = max(0.1, 1 - t/T)",
        "state": "log10 kappa and log10 norm_inf, 10 x 10 bins",
        "episodes": settings.episodes,
        "arithmetic": settings.arithmetic,
        "seed of the data sets": settings.seed,
        "seeds of the trainings": f"{settings.seed} to {settings.seed + settings.seeds - 1}",
    }


def emulated_provenance(results: Iterable[Result]) -> dict[str, object]:
    machine = f"{platform.machine()}, kernels {get_simd_level()}"
    return provenance(machine, [result.gathered for result in results])
