"""What a report holds, as plain data: the writers turn it into HTML, Markdown, CSV and text.

Texts are plain paragraphs, separated by blank lines. Two marks are understood everywhere: lines
that start with ``- `` are a list, and `` `code` `` is code. Everything else is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

Cell = str | int | float | None
"""One entry of a table; None and NaN mean that there is no value."""

Verdict = Literal["confirmed", "partly", "not reproduced"]
"""Whether a claim holds."""

SLUG = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")


@dataclass(frozen=True)
class Table:
    """A captioned table; cells stay numbers, and each writer formats them.

    A cell is text, a number or None. Give numbers as numbers: a column of them is right-aligned, in
    one format, and written to CSV with all digits. Rows with an equal first cell are a group.
    `note` stands below the table. `formats` has format specifications such as ``".1f"`` for the
    numbers of columns, by their headings, where the default (see `tables.column_texts`) does not
    do.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    formats: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        table, cells = f"table {self.caption!r}", f"{len(self.header)}, one per heading"
        plain = tuple(tuple(_plain(cell, table) for cell in row) for row in self.rows)
        object.__setattr__(self, "rows", plain)
        if not self.header:
            raise ValueError(f"{table} has no columns; pass at least one heading")
        for i, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(f"row {i} of {table} has {len(row)} cells; pass {cells}")
        if unknown := sorted(set(self.formats) - set(self.header)):
            known = list(self.header)
            raise ValueError(f"formats of {table} name no column: {unknown}; use headings: {known}")

    def columns(self) -> list[list[Cell]]:
        return [[row[j] for row in self.rows] for j in range(len(self.header))]


@dataclass(frozen=True)
class Figure:
    """A figure to draw, or an SVG or PNG file.

    Its caption tells what is shown and what to see in it, also readers who cannot see it. Its name
    is that of its files, without an ending: lower-case letters, digits, ``-`` and ``_``.
    """

    caption: str
    name: str
    image: MatplotlibFigure | Path | str

    def __post_init__(self) -> None:
        _check_slug("figure name", self.name)


@dataclass(frozen=True)
class Finding:
    """A claim that was checked: whether it holds, and the evidence (numbers, in words)."""

    claim: str
    verdict: Verdict
    evidence: str

    def __post_init__(self) -> None:
        if self.verdict not in get_args(Verdict):
            raise ValueError(f"verdict {self.verdict!r}; use {', '.join(get_args(Verdict))}")


@dataclass(frozen=True)
class Section:
    """A part of a report: text, then tables, then figures, then subsections.

    `anchor` names it in links and must be unique in its report.
    """

    title: str
    anchor: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    subsections: Sequence[Section] = ()

    def __post_init__(self) -> None:
        _check_slug("anchor", self.anchor)

    def walk(self) -> Iterator[Section]:
        """This section and all below it, in reading order."""
        yield self
        for section in self.subsections:
            yield from section.walk()


@dataclass(frozen=True)
class Report:
    """A whole report; the writers show its parts in the order of the fields.

    `summary` is the few sentences that a reader in a hurry needs; `settings` tell what was run,
    `provenance` on which machine, when, with which versions (values are shown as text, lists with
    commas). `departures` are pairs (title, text): where the work departs from what it reproduces,
    and what that explains.
    """

    title: str
    summary: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    sections: Sequence[Section] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    departures: Sequence[tuple[str, str]] = ()

    RESERVED = ("board", "summary", "findings", "settings", "provenance", "departures", "contents")

    def __post_init__(self) -> None:
        _check_unique("anchor", [*self.RESERVED, *(s.anchor for s in self.walk())])
        _check_unique("figure name", [figure.name for figure in self.figures()])

    def walk(self) -> Iterator[Section]:
        """All sections and subsections, in reading order."""
        for section in self.sections:
            yield from section.walk()

    def tables(self) -> list[Table]:
        """All tables, in reading order."""
        return [table for section in self.walk() for table in section.tables]

    def figures(self) -> list[Figure]:
        """All figures, in reading order."""
        return [figure for section in self.walk() for figure in section.figures]


def _plain(cell: object, table: str) -> Cell:
    """Convert a NumPy scalar to Python's; refuse what is no text, number or None."""
    value = cell.item() if isinstance(cell, np.generic) else cell
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"a cell of {table} is {type(cell).__name__}; pass text, a number or None")


def _check_slug(kind: str, text: str) -> None:
    if not SLUG.fullmatch(text):
        raise ValueError(
            f"{kind} {text!r}; use lower-case letters and digits, joined by - or _, like 'dense-w1'"
        )


def _check_unique(kind: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{kind} {name!r} is used twice in the report; rename one")
