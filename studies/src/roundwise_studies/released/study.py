"""The departure study: an experiment with the released code's departures, one by one.

The paper's numbers come from its released code, which departs from its text. Here the same
experiment is run on the paper's own systems as the text says, with each departure switched on by
itself, with all of them, and with all but one, so that a number can be traced to the departure that
makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from roundwise_studies.evaluation.accuracy import RANGE_SLACK
from roundwise_studies.paper.systems import TEST_ABOVE
from roundwise_studies.protocol import Bars, Part, Study, caution, no_bars
from roundwise_studies.released import tables
from roundwise_studies.released.figures import figures
from roundwise_studies.released.variants import DATA, DEPARTURES, Variant, variants
from roundwise_studies.report import Report
from roundwise_studies.simulated.experiment import EXPERIMENTS, Settings
from roundwise_studies.simulated.gather import SimulatedGathered, gather
from roundwise_studies.simulated.running import Result, run
from roundwise_studies.simulated.study import describe, emulated_provenance
from roundwise_studies.tabulating import flat_tables, plain_rows

ABOUT = (
    "The experiment on the paper's own systems: in `operation` arithmetic, in `storage` "
    "arithmetic, with each departure of the released code by itself, with all but one, and with "
    "all of them; and first, for the luck of the draw, in `operation` arithmetic on our systems."
)
LEGEND = tuple((f"+ {name}", f"{text}.") for name, text in DEPARTURES.items())


@dataclass(frozen=True)
class DepartureStudy(Study[dict[str, SimulatedGathered], dict[str, Result]]):
    """An experiment in each variant; the arithmetic of `settings` is not used.

    Without `variants`, all of the experiment.
    """

    settings: Settings = field(default_factory=Settings)
    experiment: str = "dense"
    variants: tuple[Variant, ...] = ()

    def __post_init__(self) -> None:
        if not self.variants:
            object.__setattr__(self, "variants", variants(self.experiment))

    @property
    def name(self) -> str:
        return "departures" if self.experiment == "dense" else f"departures-{self.experiment}"

    def gather(
        self, cache: Path, jobs: int | None = None, bars: Bars = no_bars
    ) -> dict[str, SimulatedGathered]:
        found = {}
        for variant in self.variants:
            gathered = gather(variant, self.settings, cache, jobs, bars)
            if variant.data == DATA["dense"] and self.settings.sizes == Settings().sizes:
                gathered = _in_the_papers_ranges(gathered)
            found[variant.name] = gathered
        return found

    def run(
        self, gathered: Mapping[str, SimulatedGathered], bars: Bars = no_bars
    ) -> dict[str, Result]:
        found, bar = {}, bars("departures, learning")
        for variant in self.variants:
            settings = replace(self.settings, arithmetic=variant.arithmetic)
            outcomes = gathered[variant.name]
            found[variant.name] = run(
                EXPERIMENTS[self.experiment], settings, outcomes, learner=variant
            )
            bar(len(found), len(self.variants))
        return found

    def tabulate(self, result: Mapping[str, Result]) -> list[Part]:
        flat = {
            "performance": tables.performance(result),
            "usage": tables.usage(result),
            "distances": tables.distances(result),
        }
        return [
            Part(
                self.name,
                f"{EXPERIMENTS[self.experiment].title}, departure by departure",
                ABOUT,
                tables.all_tables(result),
                flat_tables(flat),
                partial(figures, result),
                anchor="departure-study",
                heading="Departures of the released code",
                legend=LEGEND,
            )
        ]

    def report(self, result: Mapping[str, Result]) -> Report:
        described = {"arithmetic": "of each variant", "seed of the data sets": "the paper's"}
        return Report(
            "Where the paper's numbers come from: the departures of its released code",
            _overview(self.settings, result),
            settings=describe(self.settings) | described,
            provenance=emulated_provenance(result.values()),
            departures=LEGEND,
        )

    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        names = [variant.name for variant in self.variants]
        return {"variants": names, "departures": plain_rows(parts[0].numbers)}


def _in_the_papers_ranges(gathered: SimulatedGathered) -> SimulatedGathered:
    """With kappas of the test systems such that each is in the range that the paper has it in."""
    halves = {}
    for tau, (training, test) in gathered.halves.items():
        facts = list(test.facts)
        for i in TEST_ABOVE & set(range(len(facts))):
            facts[i] = replace(facts[i], kappa=facts[i].kappa * (1 + 2 * RANGE_SLACK))
        halves[tau] = training, replace(test, facts=facts)
    return replace(gathered, halves=halves)


def _overview(settings: Settings, results: Mapping[str, Result]) -> list[str]:
    """Which variant is nearest to the paper, number by number."""
    means = tables.mean_distances(results)
    lines = caution(settings, settings.systems, settings.seeds)
    for metric, unit in tables.METRICS.items():
        nearest = min(means, key=lambda name: means[name][metric])
        known = [f"{n} {means[n][metric]:.2f}" for n in ("storage", "all") if n in means]
        lines.append(
            f"{metric}: the nearest variant is `{nearest}`, {means[nearest][metric]:.2f} {unit} "
            f"from the paper's on average ({', '.join(known)})."
        )
    return lines
