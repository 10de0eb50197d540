"""Reports as HTML: the page stands alone, and a browser shows it well."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import chromium, screenshot, show
from outline import Outline
from report_sample import draw_usage, make_sample_report

from roundwise_studies.report import (
    Figure,
    Finding,
    Report,
    Section,
    Table,
    format_html,
    write_figure,
    write_html,
    write_markdown,
)

LOADING = {
    "script",
    "link",
    "iframe",
    "object",
    "embed",
    "video",
    "audio",
    "source",
    "base",
    "form",
}


def test_the_page_is_well_formed(report_page, sample_report):
    outline = Outline(report_page)
    assert report_page.startswith("<!doctype html>\n")
    assert not outline.faults
    identifiers = [a["id"] for _, a in outline.found if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    links = [a["href"] for a in outline.all("a")]
    assert {link[1:] for link in links} <= set(identifiers)
    # 3 claims, findings, 2 sections, 2 subsections, departures, settings, provenance
    assert len(links) == 11
    assert len(outline.all("h1")) == len(outline.all("main")) == len(outline.all("title")) == 1
    assert len(outline.all("table")) == len(sample_report.tables())
    assert all(a["alt"] for a in outline.all("img"))
    assert all(a.get("scope") in ("row", "col") for a in outline.all("th"))
    referred = {a["aria-labelledby"] for _, a in outline.found if "aria-labelledby" in a}
    assert referred <= set(identifiers)


def test_the_page_loads_nothing(report_page):
    outline = Outline(report_page)
    assert not {tag for tag, _ in outline.found} & LOADING
    for tag, attributes in outline.found:
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "img":
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
        else:
            assert not {"src", "srcset", "style", "background"} & set(attributes)
    assert all(a["href"].startswith("#") for a in outline.all("a"))
    style = report_page[report_page.index("<style>") : report_page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?:", report_page)


def test_the_findings_and_the_summary_come_first(report_page):
    places = [
        report_page.index(f'id="{anchor}"')
        for anchor in ("board", "summary", "contents", "findings", "dense")
    ]
    assert places == sorted(places)


def test_every_claim_is_on_the_board_and_links_to_its_evidence(report_page, sample_report):
    board = report_page[report_page.index('id="board"') : report_page.index('id="summary"')]
    row = (
        r'<li class="(.*?)"><a href="#finding-(\d+)">(.*?)</a>.*<span class="spoken"> (.*?)</span>'
    )
    findings = enumerate(sample_report.findings, 1)
    given = [(f.verdict.replace(" ", "-"), str(i), f.claim, f.verdict) for i, f in findings]
    assert re.findall(row, board) == given
    assert all(f".{kind} .mark" in report_page for kind, *_ in given)  # its color and column
    assert 'id="board"' not in format_html(replace(sample_report, findings=()))


def test_evidence_is_folded(report_page, sample_report):
    details = re.findall(r"<details>(.*?)</details>", report_page, re.DOTALL)
    assert len(details) == len(sample_report.findings)
    assert "Mean ferr 1.21e-14" in details[0]
    assert "<details open" not in report_page


def test_texts_cannot_become_markup():
    evil = "<script>alert(1)</script> & \"x\" 'y' `<b>`"
    section = Section(evil, "s", f"{evil}\n\n- {evil}", [Table(evil, [evil], [[evil]], evil)])
    report = Report(
        evil, [evil], [Finding(evil, "partly", evil)], [section], {evil: evil}, {evil: [evil]},
        [(evil, evil)],
    )  # fmt: skip
    text = format_html(report)
    outline = Outline(text)
    assert not outline.faults
    assert "script" not in {tag for tag, _ in outline.found}
    assert "".join(outline.text).count("<script>alert(1)</script> & \"x\" 'y' ") == 20


def test_only_long_texts_are_broken_into_lines():
    row = [1.5, "all-FP64", "a sentence that is too long for one line of a table", "2.0 ± 0.1"]
    table = Table("t", ["a", "b", "c", "d"], [row])
    text = format_html(Report("t", sections=[Section("s", "s", tables=[table])]))
    cells = Outline(text).all("td")
    assert [cell.get("class") for cell in cells] == [None, "long", "number"]
    bare = Report("t", sections=[Section("s", "s", tables=[Table("t", ["a"], [])])])
    assert not Outline(format_html(bare)).faults


def test_an_empty_report_is_a_page():
    outline = Outline(format_html(Report("Nothing yet")))
    assert not outline.faults
    assert "Nothing yet" in outline.text


def test_the_same_report_gives_the_same_bytes(report_page):
    assert format_html(make_sample_report()) == report_page


def test_pictures_from_files(tmp_path):
    with pytest.raises(ValueError, match=r"is a\.gif; pass an \.svg or \.png file"):
        format_html(Report("t", sections=[Section("s", "s", figures=[Figure("c", "f", "a.gif")])]))
    picture = tmp_path / "a.PNG"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    report = Report("t", sections=[Section("s", "s", figures=[Figure("c", "f", picture)])])
    (image,) = Outline(format_html(report)).all("img")
    assert image["src"] == "data:image/png;base64,iVBORw0KGgo="
    write_markdown(report, tmp_path / "r.md")
    assert (tmp_path / "figures" / "f.png").read_bytes() == picture.read_bytes()


def test_figures_as_files(tmp_path):
    figure = Figure("c", "f", draw_usage())
    written = [write_figure(figure, tmp_path / "new" / "folder", end) for end in ("svg", "png")]
    assert [path.name for path in written] == ["f.svg", "f.png"]
    assert written[0].read_bytes().startswith(b"<?xml")
    assert written[1].read_bytes().startswith(b"\x89PNG")

    # A report of files is the report of what they were drawn from.
    def page(figure):
        return format_html(Report("t", sections=[Section("s", "s", figures=[figure])]))

    assert page(replace(figure, image=written[0])) == page(figure)


# --- in a browser ---------------------------------------------------------------------------

SCREENS = {"laptop": (1280, 800), "phone": (390, 844)}

# What is wider than the page, apart from what scrolls in a box of its own.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll('body *')]
  .filter(e => !e.parentElement.closest('.scroll') && e.getBoundingClientRect().right > width + 1)
  .map(e => e.tagName + '.' + e.className);
"""

BOX = "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON();"

COLORS = """
const style = getComputedStyle(document.body);
return [style.color, style.backgroundColor].map(c => c.match(/\\d+/g).slice(0, 3).map(Number));
"""


def luminance(color):
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.divide(color, 255)
    ]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.fixture(scope="module")
def window():
    with chromium() as window:
        yield window


@pytest.fixture(scope="module")
def page_file(report_folder):
    """The page to look at: of the sample, or the one that ROUNDWISE_REPORT names."""
    return Path(os.environ.get("ROUNDWISE_REPORT", report_folder / "report.html"))


@pytest.fixture
def shots(tmp_path):
    """Where screenshots go; set ROUNDWISE_SCREENSHOTS to keep them."""
    folder = Path(os.environ.get("ROUNDWISE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_a_browser_shows_the_page(window, page_file, shots, screen, scheme):
    width, height = SCREENS[screen]
    show(window, page_file, width, height, scheme)

    assert window.execute_script("return document.documentElement.scrollWidth") == width
    assert window.execute_script(TOO_WIDE) == []

    title, board, summary = (window.execute_script(BOX, f) for f in ("h1", "#board", "#summary"))
    assert 0 <= title["top"] < title["bottom"] <= board["top"] < height / 4
    assert board["bottom"] <= summary["top"]
    assert window.execute_script(BOX, "main")["top"] >= summary["bottom"]

    ink, ground = map(luminance, window.execute_script(COLORS))
    assert (ink < ground) == (scheme == "light")
    contrast = (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05)
    assert contrast > 7  # WCAG's highest level

    pictures = window.execute_script(
        "return [...document.images].map(i => i.complete && i.naturalWidth > 0)"
    )
    assert pictures
    assert all(pictures)
    assert window.get_log("browser") == []  # not an error, nothing that the policy blocked
    asked = re.findall(r'"url":"((?:https?|wss?):[^"]*)"', str(window.get_log("performance")))
    assert asked == []

    shot = shots / f"report-{screen}-{scheme}.png"
    screenshot(window, shot)
    assert shot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("screen", SCREENS)
def test_marks_stand_below_their_words_and_all_fit_on_the_first_screen(
    window, report_folder, sample_report, screen
):
    width, height = SCREENS[screen]
    show(window, report_folder / "report.html", width, height, "light")
    assert window.execute_script(BOX, "#board")["bottom"] < height
    heads = window.execute_script(
        "return [...document.querySelectorAll('.scale span')].map(e => {"
        " const range = document.createRange(); range.selectNodeContents(e);"
        " const b = range.getBoundingClientRect(); return (b.left + b.right) / 2})"
    )
    place = dict(zip(("not reproduced", "partly", "confirmed"), heads[1:], strict=True))
    marks = window.execute_script(
        "return [...document.querySelectorAll('.mark')].map(e => {"
        " const b = e.getBoundingClientRect(); return (b.left + b.right) / 2})"
    )
    assert marks == pytest.approx([place[f.verdict] for f in sample_report.findings], abs=1.5)


def test_a_link_of_the_board_unfolds_the_evidence(window, report_folder):
    show(window, report_folder / "report.html", 1280, 800, "light")
    opened = "return [...document.querySelectorAll('details')].map(e => e.open)"
    assert window.execute_script(opened) == [False, False, False]
    window.execute_script("document.querySelectorAll('#board a')[1].click()")
    assert window.execute_script(opened) == [False, True, False]


def test_a_wide_table_scrolls_in_its_box(window, tmp_path):
    table = Table("Wide.", [f"column {j}" for j in range(40)], [[j / 7 for j in range(40)]])
    report = Report("Wide", ["S."], sections=[Section("s", "s", "x" * 500, [table])])
    write_html(report, tmp_path / "wide.html")
    for width, height in SCREENS.values():
        show(window, tmp_path / "wide.html", width, height, "light")
        assert window.execute_script("return document.documentElement.scrollWidth") == width
        inner, outer = window.execute_script(
            "const e = document.querySelector('.scroll'); return [e.scrollWidth, e.clientWidth]"
        )
        assert inner > outer


def test_numbers_of_a_column_end_at_one_place(window, page_file):
    show(window, page_file, 1280, 800, "light")
    ends = window.execute_script(
        "return [...document.querySelectorAll('table')].map(t => [...t.rows].map(r =>"
        " [...r.cells].filter(c => c.className == 'number').map(c => {const range ="
        " document.createRange(); range.selectNodeContents(c);"
        " return range.getBoundingClientRect().right})))"
    )
    for table in ends:
        head, *rows = [row for row in table if row]
        for row in rows:
            assert row == pytest.approx(head, abs=0.6)
