"""A report as one HTML file that needs nothing else: no network, no scripts, no other files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import count
from pathlib import Path

from roundwise_studies.report.content import Figure, Finding, Report, Section, Table
from roundwise_studies.report.images import data_uri
from roundwise_studies.report.tables import group_starts, numeric_columns, table_texts
from roundwise_studies.report.text import MISSING, SIGNS, blocks, entries, inline, verdict_counts

# With this policy a browser loads nothing, even if a text of the report holds an address.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

DASH = "\N{EN DASH}"

LONG = 40
"""A column with a text of more characters than this may wrap its lines."""


def write_html(report: Report, path: Path | str) -> None:
    """Write a report as one self-contained HTML file, the same bytes for the same report.

    It is light or dark as the reader's system is, fits a phone (wide tables and figures scroll in
    their own boxes), and prints.
    """
    Path(path).write_text(format_html(report), encoding="utf-8")


def format_html(report: Report) -> str:
    """The page that `write_html` writes."""
    style = files("roundwise_studies.report").joinpath("report.css").read_text(encoding="utf-8")
    body = "\n".join(_Page(report).lines())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


class _Page:
    """Writes the body, and counts tables and figures to number them."""

    def __init__(self, report: Report) -> None:
        self.report, self.tables, self.figures = report, count(1), count(1)

    def lines(self) -> Iterator[str]:
        report = self.report
        yield f"<header>\n<h1>{_inline(report.title)}</h1>"
        if report.findings:
            yield from _board(report.findings)
        if report.summary:
            yield '<section id="summary" aria-label="Summary">'
            yield from (f"<p>{_inline(line)}</p>" for line in report.summary)
            yield "</section>"
        yield "</header>"
        parts = [
            ("findings", "Findings", report.findings, _findings(report.findings), ()),
            *((s.anchor, s.title, True, self.body(s, 3), s.subsections) for s in report.sections),
            ("departures", "Departures", report.departures, _departures(report), ()),
            ("settings", "Settings", report.settings, _pairs(report.settings), ()),
            ("provenance", "Provenance", report.provenance, _pairs(report.provenance), ()),
        ]
        shown = [(anchor, title, body, inner) for anchor, title, full, body, inner in parts if full]
        yield '<nav id="contents" aria-label="Contents">\n<p>Contents</p>\n<ul>'
        for anchor, title, _, inner in shown:
            below = "".join(_link(section.anchor, section.title) for section in inner)
            yield _link(anchor, title, f"<ul>{below}</ul>" if below else "")
        yield "</ul>\n</nav>\n<main>"
        for anchor, title, body, _ in shown:
            yield from _section(anchor, title, body)
        yield "</main>"

    def body(self, section: Section, level: int) -> Iterator[str]:
        """What stands below the heading; `level` is that of the headings of its subsections."""
        yield from _paragraphs(section.text)
        for table in section.tables:
            yield from self.table(table)
        for figure in section.figures:
            yield from self.figure(figure)
        for inner in section.subsections:
            yield from _section(inner.anchor, inner.title, self.body(inner, level + 1), level)

    def table(self, table: Table) -> Iterator[str]:
        number = next(self.tables)
        name = f"table-{number}"
        yield f'<figure class="table" id="{name}">'
        yield _caption("Table", number, table.caption)
        yield f"{_scrolling(name)}\n<table>"
        kinds = [f' class="{kind}"' if kind else "" for kind in _column_kinds(table)]
        heads = zip(table.header, kinds, strict=True)
        yield "<thead><tr>"
        yield "".join(f'<th scope="col"{kind}>{_inline(text)}</th>' for text, kind in heads)
        yield "</tr></thead>\n<tbody>"
        for row, new in zip(table_texts(table), group_starts(table), strict=True):
            first, *rest = (
                f"{kind}>{DASH if text == MISSING else _inline(text)}"
                for text, kind in zip(row, kinds, strict=True)
            )
            cells = "".join(f"<td{cell}</td>" for cell in rest)
            start = '<tr class="group">' if new else "<tr>"
            yield f'{start}<th scope="row"{first}</th>{cells}</tr>'
        yield "</tbody>\n</table>\n</div>"
        if table.note:
            yield f'<p class="note">{_inline(table.note)}</p>'
        yield "</figure>"

    def figure(self, figure: Figure) -> Iterator[str]:
        number = next(self.figures)
        name = f"figure-{number}"
        alt = escape(" ".join(figure.caption.split()))
        yield f'<figure class="picture" id="{name}">'
        yield f'{_scrolling(name)}\n<img src="{data_uri(figure)}" alt="{alt}">\n</div>'
        yield f"{_caption('Figure', number, figure.caption)}\n</figure>"


def _caption(kind: str, number: int, text: str) -> str:
    anchor = f"{kind.lower()}-{number}-caption"
    return f'<figcaption id="{anchor}"><b>{kind} {number}.</b> \n{_inline(text)}</figcaption>'


def _scrolling(name: str) -> str:
    """The start of a box that scrolls; tabindex lets the keyboard scroll it, too."""
    return f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0">'


def _column_kinds(table: Table) -> list[str]:
    """The CSS class of each column: "number" (to the right), "long" (may wrap), or none."""
    return [
        "number" if number else "long" if any(len(str(cell)) > LONG for cell in cells) else ""
        for number, cells in zip(numeric_columns(table), table.columns(), strict=True)
    ]


def _section(anchor: str, title: str, body: Iterable[str], level: int = 2) -> Iterator[str]:
    heading = f"h{min(level, 6)}"
    yield f'<section id="{anchor}">\n<{heading}>{_inline(title)}</{heading}>'
    yield from body
    yield "</section>"


def _board(findings: Sequence[Finding]) -> Iterator[str]:
    """A picture for the first screen: each claim, and where the evidence puts it."""
    yield '<section id="board" aria-label="Claims, and whether they hold">'
    yield f"<p>{verdict_counts(findings)}</p>"
    columns = "".join(f"<span>{word}</span>" for word in ("missing", "in part", "holds"))
    yield f'<div class="scale" aria-hidden="true"><span></span>{columns}</div>\n<ol>'
    for number, finding in enumerate(findings, 1):
        claim = f'<a href="#finding-{number}">{_inline(finding.claim)}</a>'
        yield f'<li class="{finding.verdict.replace(" ", "-")}">{claim}{_mark(finding)}</li>'
    yield "</ol>\n</section>"


def _mark(finding: Finding) -> str:
    """The sign of a verdict for eyes, and its word for those who listen."""
    sign = f'<span aria-hidden="true">{SIGNS[finding.verdict]}</span>'
    return f'<span class="mark">{sign}<span class="spoken"> {finding.verdict}</span></span>'


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    """The claims; the evidence of each unfolds, also when a link leads to it."""
    yield f'<p>{verdict_counts(findings)} Open one for its numbers.</p>\n<ul class="findings">'
    for number, finding in enumerate(findings, 1):
        sign = f'<span aria-hidden="true">{SIGNS[finding.verdict]}</span>'
        yield f'<li class="{finding.verdict.replace(" ", "-")}">'
        yield f'<span class="verdict">{sign} {finding.verdict}</span>'
        yield f"<details><summary>{_inline(finding.claim)}</summary>"
        yield f'<div id="finding-{number}">'
        yield from _paragraphs(finding.evidence)
        yield "</div></details></li>"
    yield "</ul>"


def _departures(report: Report) -> Iterator[str]:
    for title, text in report.departures:
        yield f"<h3>{_inline(title)}</h3>"
        yield from _paragraphs(text)


def _pairs(values: Mapping[str, object]) -> Iterator[str]:
    yield "<dl>"
    for name, value in entries(values):
        yield f"<div><dt>{_inline(name)}</dt><dd>{_inline(value)}</dd></div>"
    yield "</dl>"


def _link(anchor: str, title: str, below: str = "") -> str:
    return f'<li><a href="#{anchor}">{_inline(title)}</a>{below}</li>'


def _paragraphs(text: str) -> Iterator[str]:
    for block in blocks(text):
        if isinstance(block, list):
            yield "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in block) + "</ul>"
        else:
            yield f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    return inline(text, escape, lambda code: f"<code>{escape(code)}</code>")
