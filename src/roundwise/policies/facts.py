"""Facts of other systems: what each format achieved on them, without times.

They hold on any machine. A case is one system: its place among others (see `profile`), the fill-in
of its factors, and for each format of its kind's method whether it sufficed, and with how many
corrections and GMRES iterations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

import roundwise._kernels as _kernels
from roundwise._forking import cached_property
from roundwise.algorithms.accuracy import default_tolerance
from roundwise.costs import Work
from roundwise.exceptions import RoundwiseError
from roundwise.policies.profile import KINDS, PLACE, Profile, position_of

Array = NDArray[np.float64]

SCHEMA = "roundwise-facts"
VERSION = 3
NEIGHBOURS, RADIUS, ENOUGH = 10, 1.5, 6
"""The nearest ten cases within this distance decide; of fewer than six, nothing is known. A taste:
``make default-policy`` compares what they lead to with other policies."""

COUNTS = ("met", "steps", "iterations")
"""Columns for each format: whether it sufficed (1 or 0), corrections, GMRES iterations."""


class FactsError(RoundwiseError, ValueError):
    """A file that holds no facts this version can read."""


@dataclass(frozen=True)
class Tried:
    """The result of one format on one system."""

    met: bool
    steps: int
    iterations: int


@cache
def columns_of(kind: str) -> tuple[str, ...]:
    """The names of the columns of a kind's table."""
    formats = (fmt.name for fmt in KINDS[kind].formats)
    return (*PLACE, "fill", *(f"{fmt} {count}" for fmt in formats for count in COUNTS))


@dataclass(frozen=True)
class Experience:
    """Facts of some systems of one kind."""

    systems: int
    fill: float  # the geometric mean of their fill-in
    met: Mapping[str, int]  # format to how often it sufficed
    climbs: Mapping[str, Mapping[str, Work]]  # first format to the work, by format, of all climbs

    @classmethod
    def of(cls, kind: str, rows: Array) -> Experience:
        """The experience in rows of a kind's table, for formats that all of these systems tried."""
        columns = rows.T.tolist()  # plain numbers: there are ten of each
        start, everyone = len(PLACE) + 1, list(range(len(rows)))
        places = {fmt.name: start + 3 * i for i, fmt in enumerate(KINDS[kind].formats)}
        met = {fmt: sum(columns[place]) for fmt, place in places.items()}
        formats = [fmt for fmt, count in met.items() if not math.isnan(count)]
        climbs: dict[str, dict[str, Work]] = {fmt: {} for fmt in formats}
        for first, name in enumerate(formats):
            reached = everyone
            for fmt in formats[first:]:
                if not reached:
                    break
                suffices, steps, iterations = columns[places[fmt] : places[fmt] + 3]
                work = sum([steps[i] for i in reached]), sum([iterations[i] for i in reached])
                climbs[name][fmt] = Work(len(reached), int(work[0]), int(work[1]))
                reached = [i for i in reached if not suffices[i]]
        fill = math.prod(columns[start - 1]) ** (1 / len(rows)) if everyone else 1.0
        return cls(len(rows), fill, {fmt: int(met[fmt]) for fmt in formats}, climbs)


def eased(kind: str, rows: Array, n: int, tol: float) -> Array:
    """Rows of a kind's table as they would be for a system of n unknowns with another tolerance.

    They were gathered with the usual one. Two facts of backward stable factors with unit roundoff
    u: the first x has a backward error of about u, at most about ``sqrt(n) u``; so a tolerance that
    large is met without a correction. And each correction gains as many digits as the one before:
    so of those from u to the usual tolerance, as many are needed as there are digits to ``tol``.
    Where a format failed, nobody knows that.
    """
    start, found = len(PLACE) + 1, rows.copy()
    usual = default_tolerance(n)
    for i, fmt in enumerate(KINDS[kind].formats):
        u = fmt.unit_roundoff
        met, work = found[:, start + 3 * i], found[:, start + 3 * i + 1 : start + 3 * i + 3]
        if tol >= default_tolerance(n, fmt):
            known = ~np.isnan(met)
            met[known], work[known] = 1.0, 0.0
        elif u > usual:
            share = max(0.0, math.log(u / tol) / math.log(u / usual))
            work[met == 1] = np.ceil(share * work[met == 1])
    return found


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts of many systems, and their source.

    Parameters
    ----------
    tables : mapping of str to array
        For each kind of system a table, whose columns `columns_of` names.
    provenance : mapping
        Where they come from.

    Examples
    --------
    >>> from roundwise.policies import shipped_facts
    >>> sorted(shipped_facts().tables)
    ['dense', 'positive definite', 'sparse', 'sparse unsymmetric']
    """

    tables: Mapping[str, Array]  # by kind: the columns of `columns_of`, a row for each system
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def gathered(
        cls,
        cases: Iterable[tuple[Profile, float, Mapping[str, Tried]]],
        provenance: Mapping[str, Any] | None = None,
    ) -> Facts:
        """Facts from (system, fill-in of its factors, results by format's name)."""
        rows: dict[str, list[list[float]]] = {}
        for profile, fill, tried in cases:
            row = [*profile.place, fill]
            for fmt in profile.method.formats:
                known = tried.get(fmt.name)
                row += [math.nan] * 3 if known is None else [float(x) for x in vars(known).values()]
            rows.setdefault(profile.kind, []).append(row)
        return cls({kind: np.array(rows[kind]) for kind in KINDS if kind in rows}, provenance or {})

    def near(self, profile: Profile) -> tuple[int, ...]:
        """The rows of the systems of that kind most like this one; none if there are too few."""
        if profile.kind not in self._positions:
            return ()
        points, place = self._positions[profile.kind], np.array(profile.position)
        near = _kernels.native_nearest(points, place, RADIUS**2, NEIGHBOURS)
        return () if len(near) < ENOUGH else tuple(near)

    def of(self, profile: Profile) -> Experience | None:
        """The facts of the systems of that kind most like this one; None if there are too few."""
        return self.of_rows(profile, self.near(profile))

    def of_rows(self, profile: Profile, rows: tuple[int, ...]) -> Experience | None:
        """The facts of these systems, for the profile's tolerance; None if there are none."""
        if not rows:
            return None
        found = self.tables[profile.kind][list(rows)]
        if profile.tol is not None:
            found = eased(profile.kind, found, profile.n, profile.tol)
        return Experience.of(profile.kind, found)

    @cached_property
    def _positions(self) -> dict[str, Array]:
        return {
            kind: np.array([position_of(kind, row[: len(PLACE)]) for row in table.tolist()]).T
            for kind, table in self.tables.items()
            if len(table)
        }

    def to_json(self) -> str:
        """One system per line, four digits; `from_dict` reads it."""
        saved = {"schema": SCHEMA, "version": VERSION, "provenance": dict(self.provenance)}
        head = json.dumps(saved, indent=1).removesuffix("\n}")
        tables = ",\n".join(
            f'"{kind}": {{\n"columns": {json.dumps(columns_of(kind))},\n"rows": [\n'
            + ",\n".join(_line(row) for row in table)
            + "\n]}"
            for kind, table in self.tables.items()
        )
        return f'{head},\n "tables": {{\n{tables}\n}}\n}}\n'

    @classmethod
    def from_dict(cls, saved: Any) -> Facts:
        """The facts that `to_json` wrote; anything else is refused with a reason."""
        if not isinstance(saved, dict) or saved.get("schema") != SCHEMA:
            raise FactsError("no facts of other systems; make them with `make default-policy`")
        if saved.get("version") != VERSION:
            raise FactsError(
                f"facts of version {saved.get('version')!r}, this Roundwise reads {VERSION}; make "
                "them again with `make default-policy`"
            )
        try:
            tables = {}
            for kind, table in saved["tables"].items():
                if tuple(table["columns"]) != columns_of(kind):
                    raise ValueError(f"the columns of {kind} systems are not {columns_of(kind)}")
                rows = np.array(table["rows"], dtype=np.float64)
                tables[kind] = rows.reshape(-1, len(columns_of(kind)))
            return cls(tables, dict(saved["provenance"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FactsError(f"damaged facts ({error!r}); make them again") from error


def _line(row: Array) -> str:
    return json.dumps(
        [None if math.isnan(x) else int(x) if x == int(x) else float(f"{x:.4g}") for x in row],
        separators=(",", ":"),
    )


@cache
def shipped_facts() -> Facts:
    """The facts that come with the package; read when first needed.

    Examples
    --------
    >>> from roundwise.policies import shipped_facts
    >>> all(len(table) > 0 for table in shipped_facts().tables.values())
    True
    """
    text = files("roundwise.policies").joinpath("default_policy.json").read_text(encoding="utf-8")
    return Facts.from_dict(json.loads(text))
