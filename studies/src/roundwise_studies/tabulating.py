"""What the tables of all studies are made of: flat rows, and means that skip missing values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise_studies.report import Cell, Table

FlatRow = dict[str, Cell]
"""One number, with the columns that say which one it is."""


def row_table(
    caption: str, rows: Sequence[FlatRow], note: str = "", formats: Mapping[str, str] | None = None
) -> Table:
    """A table with the columns of the last row: others may lack some, `formats` may have more."""
    header = list(rows[-1])
    cells = [[row.get(column) for column in header] for row in rows]
    places = {column: text for column, text in (formats or {}).items() if column in header}
    return Table(caption, header, cells, note, places)


def flat_tables(kinds: Mapping[str, Iterable[FlatRow]]) -> dict[str, Table]:
    """Tables of flat rows by name, for CSV; kinds without rows are left out."""
    listed = {name: list(rows) for name, rows in kinds.items()}
    return {name: row_table(name, rows) for name, rows in listed.items() if rows}


def plain_rows(tables: Mapping[str, Table]) -> dict[str, list[dict[str, Any]]]:
    """Tables as rows for JSON, which has neither NaN nor infinity."""

    def plain(cell: Cell) -> Cell:
        return None if isinstance(cell, float) and not math.isfinite(cell) else cell

    return {
        name: [dict(zip(table.header, map(plain, row), strict=True)) for row in table.rows]
        for name, table in tables.items()
    }


def finite_mean(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    """The mean of the finite values; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else math.nan
