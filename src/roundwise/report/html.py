"""A report as one HTML file that needs nothing else: no network, no scripts, no other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from roundwise.report.content import Figure, Finding, Report, Section, Table
from roundwise.report.images import data_uri
from roundwise.report.tables import MISSING, group_starts, numeric_columns, table_texts
from roundwise.report.text import blocks, entries, inline, verdict_counts

# With this policy a browser loads nothing, even if a text of the report holds an address.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

DASH = "\N{EN DASH}"

LONG = 40
"""A column with a text of more characters than this may wrap its lines."""

SIGNS = {"confirmed": "✓", "refuted": "✗", "partly": "◐"}


def write_html(report: Report, path: Path | str) -> None:
    """Write a report as one self-contained HTML file, the same bytes for the same report.

    It is light or dark as the reader's system is, fits a phone (wide tables and figures scroll in
    their own boxes), and prints.
    """
    Path(path).write_text(format_html(report), encoding="utf-8")


def format_html(report: Report) -> str:
    """The page that `write_html` writes."""
    style = files("roundwise.report").joinpath("report.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(report.title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            *_Page(report).lines(),
            "</body>",
            "</html>",
            "",
        ]
    )


class _Page:
    """Writes the body, and counts tables and figures to number them."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.tables = self.figures = 0

    def lines(self) -> Iterator[str]:
        report = self.report
        yield "<header>"
        yield f"<h1>{_inline(report.title)}</h1>"
        if report.summary:
            yield '<section id="summary" aria-label="Summary">'
            yield from (f"<p>{_inline(line)}</p>" for line in report.summary)
            yield "</section>"
        yield "</header>"
        yield from self.contents()
        yield "<main>"
        if report.findings:
            yield from _findings(report.findings)
        for section in report.sections:
            yield from self.section(section, 2)
        if report.departures:
            yield from _departures(report.departures)
        for title, values in (("Settings", report.settings), ("Provenance", report.provenance)):
            if values:
                yield from _pairs(title, values)
        yield "</main>"

    def contents(self) -> Iterator[str]:
        report = self.report
        tail = [
            ("departures", "Departures", report.departures),
            ("settings", "Settings", report.settings),
            ("provenance", "Provenance", report.provenance),
        ]
        yield '<nav id="contents" aria-label="Contents">'
        yield "<p>Contents</p>"
        yield "<ul>"
        if report.findings:
            yield _link("findings", "Findings")
        for section in report.sections:
            inner = [_link(s.anchor, s.title) for s in section.subsections]
            yield _link(section.anchor, section.title, inner)
        yield from (_link(anchor, title) for anchor, title, content in tail if content)
        yield "</ul>"
        yield "</nav>"

    def section(self, section: Section, level: int) -> Iterator[str]:
        yield f'<section id="{section.anchor}">'
        yield f"<h{level}>{_inline(section.title)}</h{level}>"
        yield from _paragraphs(section.text)
        for table in section.tables:
            yield from self.table(table)
        for figure in section.figures:
            yield from self.figure(figure)
        for inner in section.subsections:
            yield from self.section(inner, min(level + 1, 6))
        yield "</section>"

    def table(self, table: Table) -> Iterator[str]:
        self.tables += 1
        name = f"table-{self.tables}"
        yield f'<figure class="table" id="{name}">'
        yield f'<figcaption id="{name}-caption"><b>Table {self.tables}.</b> '
        yield f"{_inline(table.caption)}</figcaption>"
        # tabindex lets the keyboard scroll it, too.
        yield f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0">'
        yield "<table>"
        kinds = [f' class="{kind}"' if kind else "" for kind in _column_kinds(table)]
        heads = zip(table.header, kinds, strict=True)
        yield "<thead><tr>"
        yield "".join(f'<th scope="col"{kind}>{_inline(text)}</th>' for text, kind in heads)
        yield "</tr></thead>"
        yield "<tbody>"
        for row, new in zip(table_texts(table), group_starts(table), strict=True):
            first, *rest = (
                f"{kind}>{DASH if text == MISSING else _inline(text)}"
                for text, kind in zip(row, kinds, strict=True)
            )
            cells = "".join(f"<td{cell}</td>" for cell in rest)
            start = '<tr class="group">' if new else "<tr>"
            yield f'{start}<th scope="row"{first}</th>{cells}</tr>'
        yield "</tbody>"
        yield "</table>"
        yield "</div>"
        if table.note:
            yield f'<p class="note">{_inline(table.note)}</p>'
        yield "</figure>"

    def figure(self, figure: Figure) -> Iterator[str]:
        self.figures += 1
        name = f"figure-{self.figures}"
        alt = escape(" ".join((figure.alt or figure.caption).split()))
        yield f'<figure class="picture" id="{name}">'
        yield f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0">'
        yield f'<img src="{data_uri(figure)}" alt="{alt}">'
        yield "</div>"
        yield f'<figcaption id="{name}-caption"><b>Figure {self.figures}.</b> '
        yield f"{_inline(figure.caption)}</figcaption>"
        yield "</figure>"


def _column_kinds(table: Table) -> list[str]:
    """The CSS class of each column: "number" (to the right), "long" (may wrap), or none."""
    columns = zip(*table_texts(table), strict=True) if table.rows else [()] * len(table.header)
    return [
        "number" if number else "long" if max(map(len, texts), default=0) > LONG else ""
        for number, texts in zip(numeric_columns(table), columns, strict=True)
    ]


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    yield '<section id="findings">'
    yield "<h2>Findings</h2>"
    yield f"<p>{verdict_counts(findings)}</p>"
    yield '<ul class="findings">'
    for finding in findings:
        sign = f'<span aria-hidden="true">{SIGNS[finding.verdict]}</span>'
        yield f'<li class="{finding.verdict}">'
        yield f'<span class="verdict">{sign} {finding.verdict}</span>'
        yield f"<div><p><b>{_inline(finding.claim)}</b></p>"
        yield from _paragraphs(finding.evidence)
        yield "</div></li>"
    yield "</ul>"
    yield "</section>"


def _departures(departures: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield '<section id="departures">'
    yield "<h2>Departures</h2>"
    for title, text in departures:
        yield f"<h3>{_inline(title)}</h3>"
        yield from _paragraphs(text)
    yield "</section>"


def _pairs(title: str, values: Mapping[str, object]) -> Iterator[str]:
    yield f'<section id="{title.lower()}">'
    yield f"<h2>{title}</h2>"
    yield "<dl>"
    for name, value in entries(values):
        yield f"<div><dt>{_inline(name)}</dt><dd>{_inline(value)}</dd></div>"
    yield "</dl>"
    yield "</section>"


def _link(anchor: str, title: str, inner: Sequence[str] = ()) -> str:
    below = f"<ul>{''.join(inner)}</ul>" if inner else ""
    return f'<li><a href="#{anchor}">{_inline(title)}</a>{below}</li>'


def _paragraphs(text: str) -> Iterator[str]:
    for block in blocks(text):
        if isinstance(block, list):
            yield "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in block) + "</ul>"
        else:
            yield f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    return inline(text, escape, lambda code: f"<code>{escape(code)}</code>")
