"""Reports: what is written is read back, the page stands alone, and a browser shows it well."""

import csv
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import chromium, screenshot, show

from roundwise.report import (
    Figure,
    Finding,
    Report,
    Section,
    Table,
    figures,
    format_html,
    format_markdown,
    format_text,
    write_csv,
    write_figure,
    write_html,
    write_markdown,
)
from roundwise.report.drawing import STYLE, ink_on
from roundwise.report.tables import column_texts, group_starts, numeric_columns
from roundwise.report.text import blocks, entries

CASES = ("W1, tau = 1e-6", "W2, tau = 1e-6")
FORMATS = ("bf16", "tf32", "fp32", "fp64")
FAMILIES = ("Poisson", "anisotropic", "convection-diffusion", "high contrast")
ACTIONS = (
    "bf16-fp32-fp64-fp64",
    "tf32-fp32-fp64-fp64",
    "fp32-fp64-fp64-fp64",
    "fp64-fp64-fp64-fp64",
)


# --- synthetic data -------------------------------------------------------------------------


def draw_training():
    rng = np.random.default_rng(0)
    t = np.arange(40)
    return figures.training_curves(
        {
            case: (8 - 6 * np.exp(-t / 9) + i + rng.normal(0, 0.3, (3, 40)), 4 * np.exp(-t / 9))
            for i, case in enumerate(CASES)
        }
    )


def draw_usage():
    shares = {
        CASES[0]: [[0, 0.2, 0.6, 3.2], [0, 0, 0.5, 3.5]],
        CASES[1]: [[1, 1, 1, 1], [0, 1, 1, 2]],
    }
    return figures.usage_by_range(shares, ["low", "high"], FORMATS, counts=[37, 63])


def errors(count=60, lost=1):
    rng = np.random.default_rng(1)
    kappas = 10.0 ** rng.integers(1, 9, count)
    exact = {case: (1e-16 * kappas, np.full(count, 8e-17)) for case in CASES}
    growth = 10 ** rng.uniform(0, 5, count) * np.where(np.arange(count) < lost, np.inf, 1)
    ours = {case: (ferr * growth, nbe * growth) for case, (ferr, nbe) in exact.items()}
    return ours, exact, kappas, [FAMILIES[i % 4] for i in range(count)]


def draw_errors():
    ours, exact, kappas, groups = errors()
    return figures.errors_against_fp64(ours, exact, kappas, groups, tau={CASES[0]: 1e-6})


def draw_iterations():
    _, _, kappas, _ = errors()
    rng = np.random.default_rng(2)
    ours = {case: rng.integers(0, 90, len(kappas)) for case in CASES}
    return figures.iterations_against_fp64(
        ours, {c: np.full(len(kappas), 2) for c in CASES}, kappas
    )


def draw_kappas():
    rng = np.random.default_rng(3)
    return figures.kappa_distribution(
        {name: 10 ** rng.uniform(1, 3 + 3 * i, 25) for i, name in enumerate(FAMILIES)}
    )


def draw_map():
    grid = [
        [ACTIONS[min(3, i // 2)] if abs(i - j) < 3 else None for j in range(5)] for i in range(8)
    ]
    return figures.policy_map(
        dict.fromkeys(CASES, grid), np.linspace(1, 8, 8), np.linspace(0, 2, 5), order=ACTIONS
    )


def draw_landscape():
    return figures.reward_landscape(
        {"W1": [1.0, 3.0, 9.0, 8.0], "W2": [-np.inf, np.nan, 4.0, 5.0]},
        ACTIONS,
        failed=[True, False, False, False],
        chosen={"W1": 2},
    )


DRAWINGS = {
    "training": draw_training,
    "usage": draw_usage,
    "errors": draw_errors,
    "iterations": draw_iterations,
    "kappas": draw_kappas,
    "map": draw_map,
    "landscape": draw_landscape,
}

ACCURACY = Table(
    "Accuracy on 100 dense test systems, by range of the condition number.",
    ["tau", "range", "method", "paper %", "strict %", "ferr", "ferr, paper", "outer", "GMRES"],
    [
        ["1e-6", "low", "RL(W1)", 100.0, 100.0, 1.21e-14, 1.19e-14, 2.35, 2.7],
        ["1e-6", "medium", "RL(W1)", 100.0, 97.4, 1.61e-11, 1.57e-11, 2.26, 2.2],
        ["1e-6", "high", "RL(W1)", 100.0, 100.0, 1.93e-9, 1.89e-9, 2.21, 2.54],
        ["1e-6", "low", "FP64", None, 100.0, 1.18e-14, 1.2e-14, 2.0, 2.0],
        ["1e-8", "low", "RL(W1)", 100.0, 100.0, 1.2e-14, 1.18e-14, 2.35, 4.49],
        ["1e-8", "low", "RL(W2)", 89.2, 81.1, 2.53e-7, 2.49e-7, 2.22, 12.54],
        ["1e-8", "high", "FP64", None, math.nan, 1.9e-9, 1.92e-9, 2.0, 2.93],
    ],
    note="Strict success asks for `nbe <= tau` and a forward error as FP64's. A dash: not given.",
)

USAGE = Table(
    "Mean number of stages in each format.",
    ["set", *FORMATS, "systems"],
    [["dense", 0.01, 0.0, 0.33, 3.66, 100], ["sparse", 0.0, 0.0, 0.01, 3.99, 100]],
)


CAPTIONS = {
    "training": "Learning: mean of 3 seeds, the band from the lowest to the highest.",
    "usage": "Stages in each format; low precision is used less as kappa grows.",
    "errors": "Errors of every test system; most stay at FP64's.",
    "iterations": "Inner iterations of every test system.",
    "map": "The action in each state, from low precision (light) to high (dark).",
    "landscape": "All actions on one system.",
    "kappas": "Condition numbers of the four families of PDEs.",
}


def sample_report():
    drawn = {name: Figure(CAPTIONS[name], name, draw()) for name, draw in DRAWINGS.items()}
    systems = Section(
        "Single systems", "dense-systems", figures=[drawn["errors"], drawn["iterations"]]
    )
    policy = Section("What was learned", "dense-policy", figures=[drawn["map"], drawn["landscape"]])
    dense = Section(
        "Dense systems",
        "dense",
        "100 training and 100 test systems, made as `randsvd` mode 2 does.\n\n"
        "- n uniform in 100..500\n- kappa a power of ten & at most 1e8\n\n"
        "All seeds are fixed.",
        [ACCURACY],
        [drawn["training"], drawn["usage"]],
        [systems, policy],
    )
    sparse = Section(
        "Sparse systems and PDEs", "sparse", "Two more sets.", [USAGE], [drawn["kappas"]]
    )
    return Report(
        title="The paper's experiments, run again",
        summary=[
            "Every table of the paper was computed again, with each operation rounded.",
            "FP64 errors agree with the paper's within a factor of 1.3 in every range.",
            "One of three claims holds, one in part; the use of TF32 does not, because the "
            "released code computes it as FP32.",
        ],
        findings=[
            Finding("W1 stays at FP64 accuracy", "confirmed", "Mean ferr 1.21e-14 and 1.18e-14."),
            Finding("W2 uses more low precision than W1", "partly", "In 5 of 6 cases: 0.9 > 0.4."),
            Finding("Penalty keeps iterations low", "refuted", "`lambda = 0` gives 2.7, not 11."),
        ],
        sections=[dense, sparse],
        settings={"tau": [1e-6, 1e-8], "formats": FORMATS, "quick": False, "cache": None},
        provenance={
            "version": "0.1.0",
            "arithmetic": "operation",
            "file": "/a/very/long/path/without/any/blank" * 5,
        },
        departures=[
            (
                "TF32 is no FP32",
                "The released code computes it with 24 bits; here it has 11.\n\n"
                "So TF32 is used less.",
            ),
            ("Counting", "Every inner iteration counts."),
        ],
    )


@pytest.fixture(scope="module")
def report():
    return sample_report()


@pytest.fixture(scope="module")
def folder(report, tmp_path_factory):
    """The sample as files."""
    folder = tmp_path_factory.mktemp("report")
    write_html(report, folder / "report.html")
    write_markdown(report, folder / "report.md")
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


# --- content --------------------------------------------------------------------------------


def test_tables_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"row 1 .* has 1 cells; pass 2"):
        Table("t", ["a", "b"], [[1, 2], [3]])
    with pytest.raises(ValueError, match="no columns"):
        Table("t", [], [])
    with pytest.raises(ValueError, match=r"name no column: \['c'\]"):
        Table("t", ["a"], [[1]], formats={"c": ".1f"})
    with pytest.raises(TypeError, match="is list; pass text, a number or None"):
        Table("t", ["a"], [[[1]]])
    with pytest.raises(TypeError, match="complex"):
        Table("t", ["a"], [[1j]])


@pytest.mark.parametrize("name", ["", "Dense", "a b", "a/b", "../a", "-a", 'a"'])
def test_names_that_make_no_file_or_anchor_are_refused(name):
    with pytest.raises(ValueError, match="use lower-case"):
        Section("t", name)
    with pytest.raises(ValueError, match="use lower-case"):
        Figure("c", name, "a.png")


def test_names_are_unique_and_verdicts_known():
    inner = Section("t", "a")
    with pytest.raises(ValueError, match="'a' is used twice"):
        Report("t", sections=[Section("t", "b", subsections=[inner]), inner])
    with pytest.raises(ValueError, match="'settings' is used twice"):
        Report("t", sections=[Section("t", "settings")])
    twice = [Figure("c", "f", "a.png")] * 2
    with pytest.raises(ValueError, match="'f' is used twice"):
        Report("t", sections=[Section("t", "a", figures=twice)])
    with pytest.raises(ValueError, match="confirmed, refuted, partly"):
        Finding("c", "maybe", "e")


# --- numbers and tables ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([1, 20, 300], ["1", "20", "300"]),
        ([100.0, 89.2], ["100.0", "89.2"]),
        ([2.35, 11.05, 2.0], ["2.35", "11.05", "2.00"]),
        ([0.33, 3.66, 0.0], ["0.33", "3.66", "0.00"]),
        ([0.027, 3.973], ["0.027", "3.973"]),
        ([1.0, 2.0], ["1", "2"]),
        ([0.0, None], ["0.00", "-"]),
        ([1.19e-14, 2.5], ["1.19e-14", "2.50e0"]),
        ([0.0, 1e-9], ["0", "1.00e-9"]),
        ([1.5e7, 12.0], ["1.50e7", "1.20e1"]),
        ([-0.5, 0.25], ["-0.50", "0.25"]),
        ([None, math.nan, math.inf, -math.inf], ["-", "-", "inf", "-inf"]),
        (["a", "", None], ["a", "-", "-"]),
        ([True, False], ["yes", "no"]),
        ([], []),
    ],
)
def test_a_column_has_one_format(cells, texts):
    assert column_texts(cells) == texts


def test_a_given_format_rules():
    assert column_texts([1, 2.345, None], ".1f") == ["1.0", "2.3", "-"]
    table = Table("t", ["a"], [[1e-9]], formats={"a": ".0e"})
    assert format_text(table).splitlines()[-1] == "1e-9"


def test_numpy_scalars_are_numbers():
    table = Table("t", ["a", "b"], [[np.float32(0.5), np.int64(3)], [np.float64(0.25), np.int8(4)]])
    assert table.rows == ((0.5, 3), (0.25, 4))
    assert format_text(table).splitlines()[-2:] == ["0.50  3", "0.25  4"]


def test_columns_of_numbers_are_known():
    header = ["n", "text", "mixed", "± text", "nothing", "range"]
    rows = [
        [1, "a", 1.0, "1.2 ± 0.3", None, "[0, 1]"],
        [None, "b", "x", "-3 [-4, 2]", math.nan, "[1, 2]"],
    ]
    assert numeric_columns(Table("t", header, rows)) == [True, False, False, True, True, False]


def test_groups_are_runs_of_equal_first_cells():
    def starts(firsts):
        return group_starts(Table("t", ["a"], [[first] for first in firsts]))

    assert starts(["x", "x", "y", "y", "z"]) == [False, False, True, False, True]
    assert starts(["x", "y", "z"]) == [False] * 3
    assert starts(["x", "x"]) == [False] * 2
    assert starts(["x"]) == [False]
    assert starts([]) == []


def test_text_tables_are_aligned():
    table = Table("Caption.", ["name", "value"], [["a", 10.25], ["long name", 2.0]], note="Note.")
    assert format_text(table).splitlines() == [
        "Caption.",
        "",
        "name       value",
        "---------  -----",
        "a          10.25",
        "long name   2.00",
        "",
        "Note.",
    ]
    assert format_text(Table("t", ["a", "b"], [])).splitlines() == ["t", "", "a  b", "-  -"]


def test_csv_gives_the_numbers_back(tmp_path):
    rng = np.random.default_rng(0)
    numbers = [float(x) for x in 10.0 ** rng.uniform(-300, 300, 50)] + [0.1, -0.0, 5e-324, math.inf]
    texts = ['comma, "quotes"', "two\nlines", "|bar|", "", "naïve κ"]
    rows = [[x, i, texts[i % 5], None] for i, x in enumerate(numbers)]
    write_csv(Table("t", ["x", "i, j", "text", "none"], rows), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["x", "i, j", "text", "none"]
    assert [[float(a), int(b), c, d or None] for a, b, c, d in lines] == rows
    assert b"\r" not in (tmp_path / "t.csv").read_bytes()


def read_markdown(text):
    """Cells of the table in a Markdown text, with their escapes undone."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in line] for line in cells]


def test_markdown_gives_the_cells_back():
    texts = ["a|b", "*bold*", "snake_case", "<b>", "[link](x)", "100.0*", "a\nb", "`x|y`"]
    table = Table("T*x*", ["name | it", "value"], [[t, i / 8] for i, t in enumerate(texts)], "n_1")
    text = format_markdown(table)
    header, rule, *rows = read_markdown(text)
    assert header == ["name | it", "value"]
    assert rule == [":--", "--:"]
    assert [name for name, _ in rows] == [" ".join(t.split()) for t in texts]
    assert [float(value) for _, value in rows] == [i / 8 for i in range(8)]
    assert text.startswith("**T\\*x\\***\n")
    assert text.endswith("*n\\_1*")


def test_markdown_report_shows_every_part(report, folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    headings = re.findall(r"^(#+) (.*)$", text, flags=re.M)
    assert headings == [
        ("#", "The paper's experiments, run again"),
        ("##", "Summary"),
        ("##", "Findings"),
        ("##", "Dense systems"),
        ("###", "Single systems"),
        ("###", "What was learned"),
        ("##", "Sparse systems and PDEs"),
        ("##", "Departures"),
        ("###", "TF32 is no FP32"),
        ("###", "Counting"),
        ("##", "Settings"),
        ("##", "Provenance"),
    ]
    pictures = re.findall(r"^!\[.+\]\((.+)\)$", text, flags=re.M)
    assert pictures == [f"figures/{figure.name}.svg" for figure in report.figures()]
    assert all((folder / picture).is_file() for picture in pictures)
    assert "**Table 2. " in text
    assert "**Figure 7.** " in text


def test_a_paragraph_stays_a_paragraph_in_markdown(tmp_path):
    texts = ["# no heading", "1. no list", "> no quote", "+ no list", "---", "-5 dB", "a * b_c"]
    write_markdown(Report("t", sections=[Section("s", "s", "\n\n".join(texts))]), tmp_path / "r.md")
    lines = (tmp_path / "r.md").read_text().splitlines()[4::2]
    assert [re.sub(r"\\(.)", r"\1", line) for line in lines] == texts
    assert not any(re.match(r"#|>|\+|-|\d+\.", line) for line in lines)


def test_blocks_are_paragraphs_and_lists():
    text = "One\nparagraph.\n\n- a\n- b\n  goes on\n\nText:\n- c\n\n\n"
    assert blocks(text) == ["One paragraph.", ["a", "b goes on"], "Text:", ["c"]]
    assert blocks("") == blocks(" \n ") == []


def test_settings_become_text():
    values = {"a": [1e-6, 0.5], "b": None, "c": True, "d": {"x": 1, "y": (2, 3)}, "e": {"q", "p"}}
    assert [text for _, text in entries(values)] == [
        "1e-6, 0.5",
        "-",
        "yes",
        "x = 1, y = 2, 3",
        "p, q",
    ]


# --- the page -------------------------------------------------------------------------------

VOID = {"meta", "img", "br", "hr", "link", "input"}
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


class Outline(HTMLParser):
    """Checks that elements nest, and gathers what the tests look at."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.found, self.text, self.faults = [], [], [], []
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"never closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        if len({name for name, _ in attributes}) != len(attributes):
            self.faults.append(f"an attribute of {tag} is given twice")
        if tag in ("p", "div", "ul", "table", "figure", "section") and "p" in self.open:
            self.faults.append(f"{tag} within p")
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes something else")

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_is_well_formed(page, report):
    outline = Outline(page)
    assert page.startswith("<!doctype html>\n")
    assert not outline.faults
    identifiers = [a["id"] for _, a in outline.found if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    links = [a["href"] for a in outline.all("a")]
    assert {link[1:] for link in links} <= set(identifiers)
    assert len(links) == 8  # findings, 2 sections, 2 subsections, departures, settings, provenance
    assert len(outline.all("h1")) == len(outline.all("main")) == len(outline.all("title")) == 1
    assert len(outline.all("table")) == len(report.tables())
    assert all(a["alt"] for a in outline.all("img"))
    assert all(a.get("scope") in ("row", "col") for a in outline.all("th"))
    referred = {a["aria-labelledby"] for _, a in outline.found if "aria-labelledby" in a}
    assert referred <= set(identifiers)


def test_the_page_loads_nothing(page):
    outline = Outline(page)
    assert not {tag for tag, _ in outline.found} & LOADING
    for tag, attributes in outline.found:
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "img":
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
        else:
            assert not {"src", "srcset", "style", "background"} & set(attributes)
    assert all(a["href"].startswith("#") for a in outline.all("a"))
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?:", page)


def test_the_summary_comes_first(page):
    places = [
        page.index(f'id="{anchor}"') for anchor in ("summary", "contents", "findings", "dense")
    ]
    assert places == sorted(places)


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
    assert "".join(outline.text).count("<script>alert(1)</script> & \"x\" 'y' ") == 19


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


def test_the_same_report_gives_the_same_bytes(page):
    assert format_html(sample_report()) == page


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


# --- figures --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWINGS)
def test_figures_are_opaque_and_labelled(name):
    figure = DRAWINGS[name]()
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())
    assert (pixels[..., 3] == 255).all()
    assert (pixels[0, 0] == 255).all()
    assert pixels[..., :3].std() > 10  # something is drawn
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert all(ax.get_title(loc="left") for ax in shown if ax.get_subplotspec().is_first_row())
    inside = figure.bbox.padded(1)
    for ax in shown:
        box = ax.get_tightbbox()
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1


def test_figures_leave_no_global_state():
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    draw_usage()
    assert dict(matplotlib.rcParams) == before
    assert STYLE["font.size"] == 10


def test_usage_bars_add_up():
    (ax, _) = draw_usage().axes
    tops = {}
    for bar in ax.patches:
        place = round(bar.get_x(), 6)
        tops[place] = max(tops.get(place, 0), bar.get_y() + bar.get_height())
    assert list(tops.values()) == pytest.approx([4, 4])


def test_lost_runs_are_shown_above_all_others():
    ours, exact, kappas, groups = errors(count=8, lost=2)
    figure = figures.errors_against_fp64(ours, exact, kappas, groups)
    heights = np.concatenate([c.get_offsets()[:, 1] for c in figure.axes[0].collections[1:]])
    finite = np.concatenate([ours[CASES[0]][0], exact[CASES[0]][0]])
    top = finite[np.isfinite(finite)].max()
    assert np.sum(heights > 3 * top) == 2
    assert len(heights) == 8
    assert "no result" in [text.get_text() for text in figure.axes[0].texts]


def test_errors_of_zero_can_be_drawn():
    zeros = {"a": (np.zeros(3), np.zeros(3))}
    figures.errors_against_fp64(zeros, zeros, [1, 10, 100]).canvas.draw()


def test_the_best_action_is_marked():
    ax = draw_landscape().axes[0]
    (star,) = [line for line in ax.lines if line.get_marker() == "*"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (9.0, 2)


def test_many_cases_and_one():
    shares = np.full((3, 4), 1.0)
    for count in (1, 3, 4, 5):
        cases = {f"case {i}": shares for i in range(count)}
        figure = figures.usage_by_range(cases, ["a", "b", "c"], FORMATS)
        assert sum(ax.get_visible() for ax in figure.axes) == count


def test_sizes_are_sorted_by_number():
    ours, exact, kappas, _ = errors(count=4, lost=0)
    sizes = ["n >= 400", "n = 200 to 299", "n < 200", "n = 300 to 399"]
    figure = figures.errors_against_fp64(ours, exact, kappas, sizes)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    found = [shown.index(size) for size in sorted(sizes, key=sizes.index) if size in shown]
    assert [shown[i] for i in sorted(found)] == [sizes[2], sizes[1], sizes[3], sizes[0]]


def test_bars_of_variants_are_stacked():
    shares = {f"case {i}": np.array([[0.5, 1.0], [0.25, 0.0], [np.nan, np.nan]]) for i in range(4)}
    figure = figures.stacked_bars(shares, ["paper", "ours", "none"], ["bf16", "fp32"], 4)
    assert sum(ax.get_visible() for ax in figure.axes) == 4
    ends = [bar.get_x() + bar.get_width() for bar in figure.axes[0].patches]
    assert ends == [0.5, 0.25, 0.0, 1.5, 0.25, 0.0]


def test_dots_of_variants_have_room_for_zero():
    panels = {
        ("ferr", "W1"): {"low": (1e-14, [[1e-13, 1e-12], []])},
        ("GMRES", "W1"): {"low": (2.7, [[0.0, 3.0], [12.0]])},
    }
    figure = figures.dots_against(panels, ["ours", "all"])
    figure.canvas.draw()
    assert [ax.get_xscale() for ax in figure.axes] == ["log", "symlog"]
    line, dots = figure.axes[1].lines[:2]
    assert list(line.get_xdata()) == [2.7, 2.7]
    assert list(dots.get_xdata()) == [0.0, 3.0]


def test_a_table_that_is_drawn():
    values = np.array([[0.0, 2.0], [1.0, 0.5]])
    ax = figures.heat_table(["a", "b"], ["x", "y"], values).axes[0]
    assert [text.get_text() for text in ax.texts] == ["0.00", "2.00", "1.00", "0.50"]
    with pytest.raises(ValueError, match=r"pass \(2, 1\)"):
        figures.heat_table(["a", "b"], ["x"], values)


def test_letters_can_be_read():
    assert ink_on((1, 1, 1)) == ink_on((1, 1, 0)) == "black"
    assert ink_on((0, 0, 0)) == ink_on((0.27, 0, 0.33)) == "white"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.training_curves({}), "curves is empty"),
        (lambda: figures.training_curves({"a": ([], [])}), "pass .episodes. or"),
        (lambda: figures.usage_by_range({"a": [[1, 2]]}, ["r"], ["f"]), "ranges by formats"),
        (lambda: figures.errors_against_fp64({"a": ([1], [1])}, {}, [1]), "must be equal"),
        (
            lambda: figures.iterations_against_fp64({"a": [1, 2]}, {"a": [1]}, [1, 2]),
            "pass a vector of length 2",
        ),
        (lambda: figures.iterations_against_fp64({"a": []}, {"a": []}, []), "at least one"),
        (
            lambda: figures.iterations_against_fp64({"a": [1]}, {"a": [1]}, [1], ["x", "y"]),
            "2 groups; pass 1",
        ),
        (lambda: figures.kappa_distribution({"a": [0.5]}), "at least 1"),
        (lambda: figures.kappa_distribution({"a": [math.inf]}), "finite"),
        (lambda: figures.policy_map({"a": [["x"]]}, [1, 2], [1]), "by len"),
        (lambda: figures.policy_map({"a": [["x"]]}, [1], [1], order=["y"]), "not in order"),
        (lambda: figures.reward_landscape({"a": [1, 2]}, ["x"]), "length 1"),
        (lambda: figures.reward_landscape({"a": [1]}, ["x"], failed=[True] * 2), "pass one for"),
    ],
)
def test_figures_refuse_garbage(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reports_need_no_matplotlib_until_they_draw():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from roundwise.report import Report, figures, format_html\n"
        "format_html(Report('t'))\n"
        "try: figures.kappa_distribution({'a': [1.0]})\n"
        "except ImportError as error: print(error)\n"
        "import roundwise; print('selenium' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "matplotlib is needed here; install roundwise[plot]",
        "False",
    ]


def test_importing_roundwise_imports_no_report():
    code = (
        "import sys, roundwise; print([m for m in sys.modules if 'report' in m and 'round' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
def page_file(folder):
    """The page to look at: of the sample, or the one that ROUNDWISE_REPORT names."""
    return Path(os.environ.get("ROUNDWISE_REPORT", folder / "report.html"))


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

    title, summary = (window.execute_script(BOX, name) for name in ("h1", "#summary"))
    assert 0 <= title["top"] < title["bottom"] <= summary["top"] < height / 2
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
