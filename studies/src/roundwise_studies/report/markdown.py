"""Reports and tables as Markdown (CommonMark with tables)."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from pathlib import Path

from roundwise_studies.report.content import Figure, Report, Section, Table
from roundwise_studies.report.images import write_figure
from roundwise_studies.report.tables import numeric_columns, table_texts
from roundwise_studies.report.text import SIGNS, blocks, entries, inline, verdict_counts


def format_markdown(table: Table) -> str:
    """A table as Markdown: bold caption, rows, note."""
    lines = [f"**{_line(table.caption)}**", ""] if table.caption else []
    rules = ["--:" if right else ":--" for right in numeric_columns(table)]
    for cells in [list(table.header), rules, *table_texts(table)]:
        texts = cells if cells is rules else [_cell(cell) for cell in cells]
        lines.append("| " + " | ".join(texts) + " |")
    if table.note:
        lines += ["", f"*{_line(table.note)}*"]
    return "\n".join(lines)


def write_markdown(report: Report, path: Path | str) -> None:
    """Write a report, and its figures as SVG into the folder ``figures`` beside it."""
    path = Path(path)
    path.write_text(_Writer(path.parent / "figures").report(report), encoding="utf-8")


class _Writer:
    """Writes the report, and counts tables and figures to number them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tables, self.figures = folder, count(1), count(1)

    def report(self, report: Report) -> str:
        parts = [f"# {_line(report.title)}"]
        if report.summary:
            parts += ["## Summary", "\n".join(f"- {_line(line)}" for line in report.summary)]
        if report.findings:
            rows = [
                [f.claim, f"{SIGNS[f.verdict]} {f.verdict}", f.evidence] for f in report.findings
            ]
            checked = Table("", ["claim", "verdict", "evidence"], rows)
            parts += ["## Findings", verdict_counts(report.findings), format_markdown(checked)]
        for section in report.sections:
            parts += self.section(section, 2)
        if report.departures:
            parts.append("## Departures")
            for title, text in report.departures:
                parts += [f"### {_line(title)}", *_paragraphs(text)]
        for title, values in (("Settings", report.settings), ("Provenance", report.provenance)):
            if values:
                lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in entries(values)]
                parts += [f"## {title}", "\n".join(["| what | value |", "| :-- | :-- |", *lines])]
        return "\n\n".join(parts) + "\n"

    def section(self, section: Section, level: int) -> list[str]:
        parts = ["#" * level + " " + _line(section.title), *_paragraphs(section.text)]
        for table in section.tables:
            numbered = f"Table {next(self.tables)}. {table.caption}"
            parts.append(format_markdown(replace(table, caption=numbered)))
        parts += [self.figure(figure) for figure in section.figures]
        for inner in section.subsections:
            parts += self.section(inner, min(level + 1, 6))
        return parts

    def figure(self, figure: Figure) -> str:
        address = f"{self.folder.name}/{write_figure(figure, self.folder).name}"
        caption = _line(figure.caption)
        return f"![{caption}]({address})\n\n**Figure {next(self.figures)}.** {caption}"


def _paragraphs(text: str) -> list[str]:
    return [
        "\n".join(f"- {_line(item)}" for item in block)
        if isinstance(block, list)
        # Escape a start that would be a heading, a quotation, a rule or a list.
        else re.sub(r"^(\d*)([#>+=.)-])", r"\1\\\2", _line(block))
        for block in blocks(text)
    ]


def _line(text: str) -> str:
    return inline(" ".join(text.split()), _escaped, lambda code: f"`{code}`")


def _cell(text: str) -> str:
    """Escape bars: Markdown splits rows at them, even inside code."""
    return inline(
        " ".join(text.split()),
        lambda plain: _escaped(plain).replace("|", "\\|"),
        lambda code: "`" + code.replace("|", "\\|") + "`",
    )


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_<\[\]])", r"\\\1", text)


def replace_block(page: str, name: str, content: str) -> str:
    """Replace what stands between ``<!-- begin name -->`` and ``<!-- end name -->``."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page lacks {begin} or {end}, or has it twice; write each once")
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    return f"{head}{begin}\n{content.strip()}\n{end}{tail}"
