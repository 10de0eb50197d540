"""What the tables of all studies are made of: flat rows, and means that skip missing values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roundwise.report import Cell, Table

FlatRow = dict[str, Cell]
"""One number, with the columns that say which one it is."""


def flat_tables(kinds: Mapping[str, Iterable[FlatRow]]) -> dict[str, Table]:
    """Tables of flat rows by name, for CSV; kinds without rows are left out."""
    found = {}
    for name, rows in kinds.items():
        listed = list(rows)
        if listed:
            header = list(listed[0])
            found[name] = Table(name, header, [[row[key] for key in header] for row in listed])
    return found


def plain_rows(tables: Mapping[str, Table]) -> dict[str, list[dict[str, Any]]]:
    """Tables as rows for JSON, which has neither NaN nor infinity."""
    return {
        name: [
            {key: _plain(cell) for key, cell in zip(table.header, row, strict=True)}
            for row in table.rows
        ]
        for name, table in tables.items()
    }


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def finite_mean(values: NDArray[np.float64] | NDArray[np.int64]) -> float:
    """The mean of the finite values; NaN if there are none."""
    kept = values[np.isfinite(values)]
    return float(kept.mean()) if kept.size else math.nan
