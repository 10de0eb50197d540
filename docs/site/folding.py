"""Pages that are short on the site: long tables, and the longest sections, are folded.

A folded part is one line that opens when it is clicked. Nothing is left out: the text in the
repository stays as it is, and the search finds what is folded.
"""

from __future__ import annotations

import re

LONGEST_TABLE = 12
"""A taste: rows of a table that stands open."""

HIGHEST = 7000
"""Pixels of a page on a laptop, about: ten screens of 900, less what the estimate is off by."""

HEADING = re.compile(r"#{1,4} ")


def folded(text: str) -> str:
    """A page in MyST's Markdown whose tables and sections are folded until it is short."""
    sections = [_with_folded_tables(section) for section in _sections(text)]
    shown, longest_first = list(sections), sorted(sections, key=_height, reverse=True)
    for keep in (True, False):
        for section in longest_first:
            if sum(map(_height, shown)) <= HIGHEST:
                break
            place = next(i for i, one in enumerate(sections) if one is section)
            shorter = _folded_section(section, keep)
            if _height(shorter) < _height(shown[place]):
                shown[place] = shorter
    return "\n".join(line for section in shown for line in section) + "\n"


def _sections(text: str) -> list[list[str]]:
    """The lines of a page, cut before each heading."""
    sections: list[list[str]] = [[]]
    in_code = False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        if HEADING.match(line) and not in_code:
            sections.append([])
        sections[-1].append(line)
    return [section for section in sections if section]


def _with_folded_tables(lines: list[str]) -> list[str]:
    made: list[str] = []
    table: list[str] = []
    in_code = False
    for line in [*lines, ""]:
        in_code ^= line.startswith("```")
        if line.startswith("|") and not in_code:
            table.append(line)
            continue
        if len(table) > LONGEST_TABLE + 2:
            head = [cell.strip() for cell in table[0].strip("|").split("|")]
            named = ", ".join(cell for cell in head[:4] if cell).replace("\\", "")
            rows = len(table) - 2
            made += ["", f":::{{dropdown}} Table of {rows} rows: {named}", *table, ":::", ""]
        else:
            made += table
        table = []
        made.append(line)
    return made[:-1]


def _folded_section(lines: list[str], keep: bool) -> list[str]:
    """The heading, with `keep` the first paragraph, and the rest folded."""
    title = lines[0].lstrip("# ") if HEADING.match(lines[0]) else ""
    if not title or lines[0].startswith("# ") or any(line.startswith("::::") for line in lines):
        return lines
    start = 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    if keep and start < len(lines) and re.match(r"[A-Za-z`*\[]", lines[start]):
        while start < len(lines) and lines[start].strip():
            start += 1
    plain = re.sub(r"[`*\[\]]|\(.*?\)", "", title)
    rest = lines[start:]
    return [*lines[:start], "", f":::::{{dropdown}} {plain}: the details", *rest, ":::::", ""]


def _height(lines: list[str]) -> float:
    """Pixels on a laptop, about."""
    height, closing = 0.0, ""
    in_code = False
    for line in lines:
        if closing:
            closing = "" if line == closing else closing
            continue
        if found := re.match(r"(:::+)\{dropdown\}", line):
            closing, height = found[1], height + 60
            continue
        in_code ^= line.startswith("```")
        if in_code:
            height += 22
        elif line.startswith("!["):
            height += 400
        elif line.startswith("|"):
            height += 45
        elif HEADING.match(line):
            height += 70
        elif line.strip():
            height += 29 * max(1.0, len(line) / 90)
        else:
            height += 12
    return height
