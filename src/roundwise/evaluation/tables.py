"""Rows of numbers as aligned text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Row = dict[str, str | int | float]
"""A line of a table: column heading to value."""


def format_table(rows: Sequence[Mapping[str, str | int | float]], digits: int = 3) -> str:
    """Rows as aligned text: text to the left, numbers to the right, NaN as ``-``.

    Columns come in the order in which they first appear; floats have `digits` significant
    digits. Without rows the text is empty.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {c: not any(isinstance(row.get(c), str) for row in rows) for c in columns}
    cells = [[_text(row.get(c, ""), digits) for c in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]

    def line(texts: Sequence[str]) -> str:
        aligned = (
            text.rjust(width) if numeric[c] else text.ljust(width)
            for c, text, width in zip(columns, texts, widths, strict=True)
        )
        return "  ".join(aligned).rstrip()

    if not rows:
        return ""
    return "\n".join([line(columns), line(["-" * w for w in widths]), *map(line, cells)])


def _text(value: str | int | float, digits: int) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)
