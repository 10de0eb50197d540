"""What was seen on other systems: facts without times, so that they hold on any machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.exceptions import RoundwiseError
from roundwise.policies.look import KINDS, Context, Kind, first_formats, position
from roundwise.solver.solution import Attempt

Array = NDArray[np.float64]

SCHEMA = "roundwise-default-policy"
VERSION = 2
NEIGHBOURS, RADIUS, ENOUGH = 10, 1.5, 6
"""So many of the nearest cases count, if they are not farther away than that; of fewer systems than
the last nothing is known."""

PLACE = ("n", "diagonal_share", "coherence", "remainder", "entries")
"""What the position of a context depends on."""


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


Case = tuple[Context, Experience]
"""Systems of one context, most often a single one, and what is known of them."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of many systems.

    Attributes
    ----------
    tables : mapping
        By kind, an array with a row of numbers for each case; see `row_of`.
    provenance : mapping
        Where they come from.
    """

    tables: Mapping[Kind, Array]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def gathered(cls, cases: Iterable[Case], provenance: Mapping[str, Any] | None = None) -> Facts:
        rows: dict[Kind, list[list[float]]] = {}
        for context, experience in cases:
            rows.setdefault(context.kind, []).append(row_of(context, experience))
        return cls({kind: np.array(rows[kind]) for kind in rows}, provenance or {})

    def of(self, context: Context) -> Experience | None:
        """Of the systems of that kind that are most like this one; None if too few are."""
        if context.kind not in self.tables:
            return None
        away = self._positions[context.kind] - context.position
        distances = np.sqrt(np.einsum("ij,ij->j", away, away))
        nearest = np.argsort(distances, kind="stable")[:NEIGHBOURS]
        near = nearest[distances[nearest] <= RADIUS]
        known = experience_of(context.kind, self.tables[context.kind][near].sum(axis=0))
        return known if known.systems >= ENOUGH else None

    @cached_property
    def _positions(self) -> dict[Kind, Array]:
        return {kind: position(kind, *table.T[: len(PLACE)]) for kind, table in self.tables.items()}

    def to_json(self) -> str:
        """One case per line, four digits; `from_dict` reads it."""
        saved = {"schema": SCHEMA, "version": VERSION, "provenance": dict(self.provenance)}
        head = json.dumps(saved, indent=1).removesuffix("\n}")
        tables = ",\n".join(
            f'"{kind}": [\n' + ",\n".join(_line(row) for row in table) + "\n]"
            for kind, table in self.tables.items()
        )
        return f'{head},\n "cases": {{\n{tables}\n}}\n}}\n'

    @classmethod
    def from_dict(cls, saved: Any) -> Facts:
        """What `to_json` wrote; anything else is refused with a reason."""
        if not isinstance(saved, dict) or saved.get("schema") != SCHEMA:
            raise FactsError("no facts of a default policy; make them with `make default-policy`")
        if saved.get("version") != VERSION:
            raise FactsError(
                f"facts of version {saved.get('version')!r}, this Roundwise reads {VERSION}; make "
                "them again with `make default-policy`"
            )
        try:
            tables = {
                kind: np.array(saved["cases"][kind], dtype=np.float64)
                for kind in KINDS
                if kind in saved["cases"]
            }
            for kind, table in tables.items():
                if table.shape[1:] != (len(row_of(Context(kind, 1, 0, 0, 1), Experience())),):
                    raise ValueError(f"rows of {kind} systems have another length")
            return cls(tables, dict(saved["provenance"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FactsError(f"damaged facts ({error!r}); install Roundwise again") from error


def row_of(context: Context, experience: Experience) -> list[float]:
    """A case as numbers that add up: what its position takes, systems, log_fill, and its starts.

    A start is how often it sufficed, then runs, steps and iterations in its own format and the
    higher ones; NaN if it was not tried.
    """
    row = [float(getattr(context, name)) for name in PLACE]
    row += [experience.systems, experience.log_fill]
    formats = first_formats(context.kind)
    for i, first in enumerate(formats):
        start = experience.starts.get(first)
        row.append(math.nan if start is None else start.sufficed)
        for fmt in formats[i:]:
            work = Work() if start is None else start.work.get(fmt, Work())
            row += [work.runs, work.steps, work.iterations]
    return row


def experience_of(kind: Kind, row: Array) -> Experience:
    """What a row, or a sum of rows, says."""
    systems, log_fill, *numbers = row[len(PLACE) :].tolist()
    formats, counts = first_formats(kind), iter(numbers)
    starts = {}
    for i, first in enumerate(formats):
        sufficed = next(counts)
        work = {fmt: Work(*(int(next(counts)) for _ in range(3))) for fmt in formats[i:]}
        if not math.isnan(sufficed):
            starts[first] = Start(int(sufficed), {f: w for f, w in work.items() if w.runs})
    return Experience(int(systems), log_fill, starts)


def _line(row: Array) -> str:
    return json.dumps(
        [None if math.isnan(x) else int(x) if x == int(x) else float(f"{x:.4g}") for x in row],
        separators=(",", ":"),
    )


@cache
def shipped_facts() -> Facts:
    """The facts that come with the package; read when first needed."""
    text = files("roundwise.policies").joinpath("default_policy.json").read_text(encoding="utf-8")
    return Facts.from_dict(json.loads(text))
