"""Figures, tables and self-contained HTML reports, from plain data.

`figures` draws (it needs matplotlib); `content` has the parts of a report; the functions here
write it.
"""

from roundwise.report.content import Cell, Figure, Finding, Report, Section, Table, Verdict
from roundwise.report.html import format_html, write_html
from roundwise.report.images import write_figure
from roundwise.report.markdown import format_markdown, replace_block, write_markdown
from roundwise.report.tables import format_text, write_csv
from roundwise.report.text import scientific
