"""What was seen on other systems: facts without times, so that they hold on any machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from roundwise.exceptions import RoundwiseError
from roundwise.solver.context import Context
from roundwise.solver.solution import Attempt

SCHEMA = "roundwise-default-policy"
VERSION = 1
ENOUGH = 6
"""Systems of a bin that count as experience."""


class FactsError(RoundwiseError, ValueError):
    """A file that holds no facts this version can read."""


@dataclass(frozen=True)
class Work:
    """What was done with factors of one format, summed over systems."""

    runs: int = 0
    steps: int = 0
    iterations: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.runs + other.runs, self.steps + other.steps, self.iterations + other.iterations
        )


Climb = Mapping[str, Work]
"""Work by format: of one solve, from its first format up to the one that sufficed."""


def climb_of(attempts: Iterable[Attempt]) -> dict[str, Work]:
    """The work of a solve's attempts."""
    climb: dict[str, Work] = {}
    for attempt in attempts:
        fmt = attempt.action.split("-")[0]
        climb[fmt] = climb.get(fmt, Work()) + Work(1, attempt.steps, attempt.inner_iterations)
    return climb


@dataclass(frozen=True)
class Start:
    """What starting in a format led to: how often it sufficed, and the work of the whole climb."""

    sufficed: int = 0
    work: Climb = field(default_factory=dict)

    def __add__(self, other: Start) -> Start:
        formats = {**self.work, **other.work}
        work = {f: self.work.get(f, Work()) + other.work.get(f, Work()) for f in formats}
        return Start(self.sufficed + other.sufficed, work)


@dataclass(frozen=True)
class Experience:
    """What is known of a bin.

    Attributes
    ----------
    systems : int
    log_fill : float
        The sum of ``log(entries of the factors / entries of A)``, for sparse systems.
    starts : dict
        By first format.
    """

    systems: int = 0
    log_fill: float = 0.0
    starts: Mapping[str, Start] = field(default_factory=dict)

    def __add__(self, other: Experience) -> Experience:
        if not self.systems:
            return other
        if not other.systems:
            return self
        starts = {f: self.starts[f] + other.starts[f] for f in self.starts if f in other.starts}
        return Experience(self.systems + other.systems, self.log_fill + other.log_fill, starts)

    @property
    def fill(self) -> float:
        """The geometric mean of the fill-in."""
        return math.exp(self.log_fill / self.systems) if self.systems else 1.0


@dataclass(frozen=True, eq=False)
class Facts:
    """Experience by bin, and where it comes from."""

    bins: Mapping[str, Experience]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _pooled: dict[str, Experience] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def gathered(
        cls, records: Iterable[tuple[Context, Experience]], provenance: Mapping[str, Any]
    ) -> Facts:
        """The sums over systems, each given with its own experience."""
        bins: dict[str, Experience] = {}
        for context, experience in records:
            bins[context.bin] = bins.get(context.bin, Experience()) + experience
        return cls({name: bins[name] for name in sorted(bins)}, provenance)

    def of(self, context: Context) -> Experience | None:
        """Of the narrowest of the context's bins that has enough systems; None if none has."""
        for name in context.bins:
            known = self._within(name)
            if known.systems >= ENOUGH:
                return known
        return None

    def _within(self, name: str) -> Experience:
        """Of a bin and all that are part of it."""
        if name not in self._pooled:
            parts = (f for bin, f in self.bins.items() if bin == name or bin.startswith(name + ","))
            self._pooled[name] = sum(parts, Experience())
        return self._pooled[name]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "provenance": dict(self.provenance),
            "bins": {
                name: {
                    "systems": known.systems,
                    "log_fill": round(known.log_fill, 6),
                    "starts": {
                        first: {
                            "sufficed": start.sufficed,
                            "work": {
                                fmt: [work.runs, work.steps, work.iterations]
                                for fmt, work in start.work.items()
                            },
                        }
                        for first, start in known.starts.items()
                    },
                }
                for name, known in self.bins.items()
            },
        }

    @classmethod
    def from_dict(cls, saved: Any) -> Facts:
        """What `to_dict` wrote; anything else is refused with a reason."""
        if not isinstance(saved, dict) or saved.get("schema") != SCHEMA:
            raise FactsError("no facts of a default policy; make them with `make default-policy`")
        if saved.get("version") != VERSION:
            raise FactsError(
                f"facts of version {saved.get('version')!r}, this Roundwise reads {VERSION}; make "
                "them again with `make default-policy`"
            )
        try:
            return cls(
                {name: _experience(known) for name, known in saved["bins"].items()},
                dict(saved["provenance"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise FactsError(f"damaged facts ({error!r}); install Roundwise again") from error


def _experience(saved: Mapping[str, Any]) -> Experience:
    starts = {
        first: Start(
            int(start["sufficed"]), {fmt: _work(counts) for fmt, counts in start["work"].items()}
        )
        for first, start in saved["starts"].items()
    }
    return Experience(int(saved["systems"]), float(saved["log_fill"]), starts)


def _work(counts: Sequence[int]) -> Work:
    runs, steps, iterations = (int(count) for count in counts)
    return Work(runs, steps, iterations)


@cache
def shipped_facts() -> Facts:
    """The facts that come with the package; read when first needed."""
    text = files("roundwise.solver").joinpath("default_policy.json").read_text(encoding="utf-8")
    return Facts.from_dict(json.loads(text))
