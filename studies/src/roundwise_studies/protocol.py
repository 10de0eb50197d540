"""The four steps of every study: gather -> run -> tabulate -> report.

`reproduce` takes the first two steps, `roundwise_studies.writing.write` the other two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from roundwise_studies.report import Figure, Report, Table

Key = TypeVar("Key")
Half = TypeVar("Half")
Outcomes = TypeVar("Outcomes")
Result = TypeVar("Result")

Bar = Callable[[int, int], None]
"""A progress callback ``bar(done, total)``."""

Bars = Callable[[str], Bar]
"""Makes the progress callback of a task from its description."""

QUICK_RUN = "QUICK RUN: too few systems for any conclusion."
OTHER_SETTINGS = "These are not the paper's settings."

FEWEST_SYSTEMS, FEWEST_SEEDS = 50, 3
"""A taste: with fewer test systems or trainings a report has numbers, and no verdicts."""


def is_quick(systems: int, seeds: int = FEWEST_SEEDS) -> bool:
    """Whether these are too few test systems or trainings for a verdict."""
    return systems < FEWEST_SYSTEMS or seeds < FEWEST_SEEDS


def caution(settings: Any, systems: int, seeds: int = FEWEST_SEEDS) -> list[str]:
    """What a report says first about settings that are not the paper's."""
    if settings.are_the_papers:
        return []
    return [QUICK_RUN if is_quick(systems, seeds) else OTHER_SETTINGS]


def no_bar(done: int, total: int) -> None:
    """Show no progress."""


def no_bars(description: str) -> Bar:
    return no_bar


@dataclass(frozen=True, eq=False)
class Gathered(Generic[Key, Half]):
    """The outcomes of a data set: training and test half for each tau, or for each set of formats.

    `origins` are the machines and versions that computed them; the table lacked `computed` runs.
    """

    halves: Mapping[Key, tuple[Half, Half]]
    origins: tuple[Mapping[str, str], ...]
    computed: int

    @property
    def first(self) -> tuple[Half, Half]:
        """The first pair of halves; systems and features are the same in each."""
        return next(iter(self.halves.values()))


@dataclass(frozen=True, eq=False)
class Part:
    """A section of the report, and the files that belong to it, whose names begin with `name`.

    `tables` are for people, in reading order, `numbers` for programs: one number per row, with all
    digits. `figures` draws the figures one by one. The section's `anchor` in links and its
    `heading` on the terminal are made from name and title unless given; `legend` has terms and
    explanations for the terminal. `for_pages`: the documentation takes files of this part, and the
    tables are written as Markdown and the figures as PNG, too.
    """

    name: str
    title: str
    about: str
    tables: Mapping[str, Table]
    numbers: Mapping[str, Table]
    figures: Callable[[], Iterable[Figure]]
    anchor: str = ""
    heading: str = ""
    legend: Sequence[tuple[str, str]] = ()
    for_pages: bool = False


class Study(ABC, Generic[Outcomes, Result]):
    """A study in four steps; `settings` is a dataclass with all that the result depends on.

    Its files go to the folder ``out/<name>`` unless told otherwise.
    """

    settings: Any

    @property
    @abstractmethod
    def name(self) -> str:
        """Of its files."""

    @abstractmethod
    def gather(self, cache: Path, jobs: int | None = None, bars: Bars = no_bars) -> Outcomes:
        """Solve what the tables in `cache` lack, with `jobs` processes; read all outcomes."""

    @abstractmethod
    def run(self, gathered: Outcomes, bars: Bars = no_bars) -> Result:
        """Train and judge policies on the outcomes; nothing is solved."""

    @abstractmethod
    def tabulate(self, result: Result) -> list[Part]:
        """Turn the result into tables and figures."""

    @abstractmethod
    def report(self, result: Result) -> Report:
        """The sentences around them: a report without its sections, which the parts become."""

    @abstractmethod
    def summary(self, report: Report, parts: Sequence[Part]) -> dict[str, Any]:
        """What ``results.json`` holds besides settings and provenance."""


def reproduce(
    study: Study[Outcomes, Result], cache: Path, jobs: int | None = None, bars: Bars = no_bars
) -> Result:
    """Gather and run; a second call with the same cache solves nothing and gives the same."""
    cache.mkdir(parents=True, exist_ok=True)
    return study.run(study.gather(cache, jobs, bars), bars)
