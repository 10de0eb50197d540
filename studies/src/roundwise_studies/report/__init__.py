"""Figures, tables and self-contained HTML reports, from plain data.

`figures` draws (it needs matplotlib); `content` has the parts of a report; the functions here
write it.
"""

from roundwise_studies.report.content import Cell, Figure, Finding, Report, Section, Table, Verdict
from roundwise_studies.report.html import format_html, write_html
from roundwise_studies.report.images import write_figure
from roundwise_studies.report.markdown import format_markdown, replace_block, write_markdown
from roundwise_studies.report.tables import format_text, write_csv
from roundwise_studies.report.text import scientific
