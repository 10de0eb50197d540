"""What was seen on other systems: facts without times, so that they hold on any machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.exceptions import RoundwiseError
from roundwise.solver.context import Context
from roundwise.solver.solution import Attempt

SCHEMA = "roundwise-default-policy"
VERSION = 2
NEIGHBOURS, RADIUS, ENOUGH = 10, 1.5, 6
"""So many of the nearest cases count, if they are not farther away than that; of fewer systems than
the last nothing is known."""


class FactsError(RoundwiseError, ValueError):
    """A file that holds no facts this version can read."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True)
class Experience:
    """What is known of some systems.

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

    @property
    def fill(self) -> float:
        """The geometric mean of the fill-in."""
        return math.exp(self.log_fill / self.systems) if self.systems else 1.0


def together(known: Sequence[Experience]) -> Experience:
    """What is known of all these systems; starts that some of them lack are left out."""
    if len(known) <= 1:
        return known[0] if known else Experience()
    starts = {}
    for fmt in known[0].starts:
        if all(fmt in one.starts for one in known):
            begun = [one.starts[fmt] for one in known]
            starts[fmt] = Start(sum(one.sufficed for one in begun), _sums(begun))
    return Experience(sum(one.systems for one in known), sum(one.log_fill for one in known), starts)


def _sums(starts: Sequence[Start]) -> Climb:
    work: dict[str, Work] = {}
    for start in starts:
        for fmt, done in start.work.items():
            work[fmt] = work[fmt] + done if fmt in work else done
    return work


Case = tuple[Context, Experience]
"""Systems of one context, most often a single one, and what is known of them."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Cases, and where they come from."""

    cases: Sequence[Case]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def of(self, context: Context) -> Experience | None:
        """Of the systems of that kind that are most like this one; None if too few are."""
        if context.kind not in self._positions:
            return None
        positions, experiences = self._positions[context.kind]
        distances = np.sqrt(((positions - context.position) ** 2).sum(axis=1))
        nearest = np.argsort(distances, kind="stable")[:NEIGHBOURS]
        known = together([experiences[i] for i in nearest if distances[i] <= RADIUS])
        return known if known.systems >= ENOUGH else None

    @cached_property
    def _positions(self) -> dict[str, tuple[NDArray[np.float64], list[Experience]]]:
        """By kind, where its cases are, and what is known of each."""
        found: dict[str, tuple[list[tuple[float, ...]], list[Experience]]] = {}
        for context, experience in self.cases:
            places, experiences = found.setdefault(context.kind, ([], []))
            places.append(context.position)
            experiences.append(experience)
        return {kind: (np.array(places), known) for kind, (places, known) in found.items()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "provenance": dict(self.provenance),
            "cases": [[_rounded(context), _saved(known)] for context, known in self.cases],
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
            cases = [(Context(**context), _experience(known)) for context, known in saved["cases"]]
            return cls(cases, dict(saved["provenance"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise FactsError(f"damaged facts ({error!r}); install Roundwise again") from error

    def to_json(self) -> str:
        """One case per line."""
        saved = self.to_dict()
        cases = ",\n".join(json.dumps(c, separators=(",", ":")) for c in saved.pop("cases"))
        head = json.dumps(saved, indent=1).removesuffix("\n}")
        return f'{head},\n "cases": [\n{cases}\n]}}\n'


def _rounded(context: Context) -> dict[str, Any]:
    """A context with four digits, without what is as it is by default."""
    saved = {f.name: getattr(context, f.name) for f in fields(Context)}
    defaults = {f.name: f.default for f in fields(Context)}
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in saved.items()
        if value != defaults[name]
    }


def _saved(known: Experience) -> dict[str, Any]:
    starts = {
        first: [
            start.sufficed,
            {fmt: [work.runs, work.steps, work.iterations] for fmt, work in start.work.items()},
        ]
        for first, start in known.starts.items()
    }
    return {"systems": known.systems, "log_fill": round(known.log_fill, 4), "starts": starts}


def _experience(saved: Mapping[str, Any]) -> Experience:
    starts = {
        first: Start(int(sufficed), {fmt: _work(counts) for fmt, counts in work.items()})
        for first, (sufficed, work) in saved["starts"].items()
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
