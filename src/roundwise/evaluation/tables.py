"""Formats rows of numbers as aligned text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Row = dict[str, str | int | float]
"""A line of a table: column heading to value."""


def format_table(rows: Sequence[Mapping[str, str | int | float]], digits: int = 3) -> str:
    """Rows as aligned text: text to the left, numbers to the right, NaN as ``-``.

    Columns come in the order in which they first appear; floats have `digits` significant
    digits. Without rows the text is empty.

    Parameters
    ----------
    rows : sequence of mappings
        Column name to cell.
    digits : int
        Significant ones of a float.

    Returns
    -------
    str

    Examples
    --------
    >>> from roundwise.evaluation import format_table
    >>> print(format_table([{"policy": "mine", "regret": 0.12345}]))
    policy  regret
    ------  ------
    mine     0.123
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [not any(isinstance(row.get(c), str) for row in rows) for c in columns]
    cells = [[_text(row.get(c, ""), digits) for c in columns] for row in rows]
    return "\n".join(aligned(columns, cells, numeric)) if rows else ""


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[str]:
    """Lines of text: the header, a rule, the rows; numeric columns stand to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(texts, widths, numeric, strict=True)
        ).rstrip()
        for texts in (header, ["-" * width for width in widths], *rows)
    ]


def _text(value: str | int | float, digits: int) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)
