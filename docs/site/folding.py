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

SURELY_TOO_HIGH = 9500
"""Pixels from which a whole chapter is folded: links to its sections are lost then. A taste."""

HEADING = re.compile(r"#{1,4} ")


def folded(text: str) -> str:
    """A page in MyST's Markdown whose tables and sections are folded until it is short."""
    sections = [_with_folded_tables(section) for section in _sections(text)]
    heights = [_height(section) for section in sections]
    while sum(heights) > HIGHEST:
        longest = max(range(len(sections)), key=heights.__getitem__)
        shorter = _folded_section(sections[longest])
        if _height(shorter) >= heights[longest]:
            break
        sections[longest], heights[longest] = shorter, _height(shorter)
    if sum(heights) > SURELY_TOO_HIGH:
        sections = _with_folded_chapter(sections)
    return "\n".join(line for section in sections for line in section) + "\n"


def _with_folded_chapter(sections: list[list[str]]) -> list[list[str]]:
    """Fold all that is below the heading of the second level with the most subsections.

    Their headings become bold text: a folded part can have none.
    """
    levels = [len(found[0]) if (found := re.match("#+", section[0])) else 0 for section in sections]
    chapters = [i for i, level in enumerate(levels) if level == 2]
    ends = [*chapters[1:], len(sections)]
    if not chapters:
        return sections
    first, end = max(zip(chapters, ends, strict=True), key=lambda part: part[1] - part[0])
    inner = []
    for section in sections[first + 1 : end]:
        plain = [line for line in section[1:] if not line.startswith(":::::")]
        inner += ["", f"**{section[0].lstrip('# ')}**", *plain]
    head = sections[first]
    made = [*head, "", f":::::{{dropdown}} {head[0].lstrip('# ')}", *inner, ":::::", ""]
    return [*sections[:first], made, *sections[end:]]


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


def _folded_section(lines: list[str]) -> list[str]:
    """The heading and the first paragraph, and the rest folded."""
    title = lines[0].lstrip("# ") if HEADING.match(lines[0]) else ""
    if not title or lines[0].startswith("# ") or any(line.startswith("::::") for line in lines):
        return lines
    start = 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    if start < len(lines) and re.match(r"[A-Za-z`*\[]", lines[start]):
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
