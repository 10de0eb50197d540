"""Reports as text, CSV and Markdown: what is written is read back."""

import csv
import math
import re

import numpy as np
import pytest

from roundwise_studies.report import (
    Figure,
    Finding,
    Report,
    Section,
    Table,
    format_markdown,
    format_text,
    write_csv,
    write_markdown,
)
from roundwise_studies.report.tables import column_texts, group_starts, numeric_columns
from roundwise_studies.report.text import blocks, entries

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
    with pytest.raises(ValueError, match="confirmed, partly, not reproduced"):
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


def test_markdown_report_shows_every_part(sample_report, report_folder):
    text = (report_folder / "report.md").read_text(encoding="utf-8")
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
    assert pictures == [f"figures/{figure.name}.svg" for figure in sample_report.figures()]
    assert all((report_folder / picture).is_file() for picture in pictures)
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
