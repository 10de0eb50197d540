"""Reads the marks in a report's texts (paragraphs, lists, code), and writes short texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from roundwise_studies.report.content import Cell, Finding

MISSING = "-"
"""Shown where there is no value."""

SIGNS = {"confirmed": "✓", "partly": "◐", "not reproduced": "✗"}
CODE = re.compile(r"`([^`]+)`")
_PADDING = re.compile(r"e(?:\+|(-))0*(?=\d)")


def short_exponent(text: str) -> str:
    """``1e-6`` for Python's ``1e-06``, ``1e5`` for ``1e+05``."""
    return _PADDING.sub(lambda match: f"e{match[1] or ''}", text)


def scientific(value: float, digits: int = 0) -> str:
    """A number in scientific notation for people: ``1e-6``, or ``1.20e-14`` with 2 digits."""
    return short_exponent(f"{value:.{digits}e}")


def cell_text(cell: Cell, spec: str) -> str:
    """A cell as text, numbers by a format specification."""
    if cell is None or cell == "" or cell != cell:
        return MISSING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    return "0" if cell == 0 and spec.endswith("e") else short_exponent(format(cell, spec))


def blocks(text: str) -> list[str | list[str]]:
    """Paragraphs as strings, and lists as lists of items, in reading order.

    A line that starts with ``- `` begins an item; what follows it indented belongs to it.
    """
    found: list[str | list[str]] = []
    for part in re.split(r"\n\s*\n", text.strip()):
        lines: list[tuple[bool, str]] = []
        for line in part.splitlines():
            if re.match(r"\s*- ", line):
                lines.append((True, line.strip()[2:].strip()))
            elif lines and (not lines[-1][0] or line.startswith(" ")):
                lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line.strip()}")
            elif line.strip():
                lines.append((False, line.strip()))
        for is_item, run in groupby(lines, key=lambda pair: pair[0]):
            texts = [line for _, line in run]
            found += [texts] if is_item else texts
    return found


def inline(text: str, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """Apply `code` to what stands between backquotes, and `plain` to the rest of a line."""
    parts = CODE.split(text)
    return "".join(code(part) if i % 2 else plain(part) for i, part in enumerate(parts))


def verdict_counts(findings: Sequence[Finding]) -> str:
    """How many claims were confirmed, and what became of the others."""
    counts: Counter[str] = Counter(finding.verdict for finding in findings)
    words = {
        "confirmed": "confirmed",
        "partly": "confirmed in part",
        "not reproduced": "not reproduced from the text",
    }
    parts = [f"{counts[verdict]} {text}" for verdict, text in words.items() if counts[verdict]]
    return f"{len(findings)} claims: {', '.join(parts)}."


def entries(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Settings or provenance as pairs of text: lists with commas, None as ``-``."""
    return [(str(name), _value(value)) for name, value in values.items()]


def _value(value: object) -> str:
    if value is None or isinstance(value, str | bool | float):
        return cell_text(value, ".6g")
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_value(v)}" for name, v in value.items())
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return str(value)
