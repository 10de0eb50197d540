"""Tables as aligned text and as CSV, and the formatting of their numbers."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

from roundwise.commands.outputs import aligned
from roundwise_studies.report.content import Cell, Table
from roundwise_studies.report.text import MISSING, cell_text

NUMBER = re.compile(r"[-+\N{MINUS SIGN}±<>≤≥~]?\s*(\d|\.\d|inf)")


def column_texts(cells: Sequence[Cell], spec: str | None = None) -> list[str]:
    """The cells of one column as text, its numbers in one format so that decimals align.

    Integers stay integers. If the size of one float is below 1e-3 or at least 1e5, all have two
    decimals in scientific notation. Else they have so many decimals (at most 3) that the smallest
    shows three digits; decimals that are 0 in all of them are dropped. Strings stay as they are;
    None and NaN become a dash. `spec` is a format specification for all numbers, instead of this
    rule.
    """
    if spec is None:
        numbers = [cell for cell in cells if isinstance(cell, (int, float))]
        sizes = [abs(x) for x in numbers if math.isfinite(x) and x != 0]
        spec = "d" if all(isinstance(x, int) for x in numbers) else _float_format(sizes)
    return [cell_text(cell, spec) for cell in cells]


def table_texts(table: Table) -> list[list[str]]:
    """The rows of a table as text, see `column_texts`."""
    columns = zip(table.header, table.columns(), strict=True)
    texts = [column_texts(cells, table.formats.get(heading)) for heading, cells in columns]
    return [list(row) for row in zip(*texts, strict=True)]


def numeric_columns(table: Table) -> list[bool]:
    """Which columns hold numbers, or texts that begin like one; these are right-aligned."""
    return [_looks_numeric(cells) for cells in table.columns()]


def group_starts(table: Table) -> list[bool]:
    """Which rows begin a new group: their first cell differs from the one above.

    If all first cells differ there are no groups.
    """
    first = [row[0] for row in table.rows]
    changes = [i > 0 and first[i] != first[i - 1] for i in range(len(first))]
    return changes if sum(changes) < len(first) - 1 else [False] * len(first)


def format_text(table: Table) -> str:
    """A table for the terminal: caption, aligned columns, note."""
    header, rule, *rows = aligned(table.header, table_texts(table), numeric_columns(table))
    lines = [table.caption, "", header, rule]
    for row, starts_group in zip(rows, group_starts(table), strict=True):
        lines += [""] * starts_group + [row]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines)


def write_csv(table: Table, path: Path | str) -> None:
    """Write the header and all rows as CSV (RFC 4180, UTF-8, lines end with ``\\n``).

    Floats have all their digits, so that reading them gives the same numbers; None is an empty
    cell, NaN ``nan``. Caption and note are left out.
    """
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.header)
        writer.writerows(table.rows)


def _float_format(sizes: Sequence[float]) -> str:
    """The format for a column, from the sizes of its nonzero, finite numbers."""
    if not sizes:
        return ".2f"
    if min(sizes) < 1e-3 or max(sizes) >= 1e5:
        return ".2e"
    decimals = min(max(2 - math.floor(math.log10(min(sizes))), 0), 3)
    while decimals and all(f"{size:.{decimals}f}".endswith("0") for size in sizes):
        decimals -= 1
    return f".{decimals}f"


def _looks_numeric(cells: Sequence[Cell]) -> bool:
    present = [cell for cell in cells if cell is not None and cell not in ("", MISSING)]
    return bool(present) and all(
        NUMBER.match(cell) if isinstance(cell, str) else not isinstance(cell, bool)
        for cell in present
    )
