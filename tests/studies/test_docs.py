"""The generated parts of the pages: their places exist, and filling them again changes nothing."""

import json

import pytest
from scripts import ROOT, loaded

from roundwise_studies.protocol import reproduce
from roundwise_studies.simulated import Settings, SimulatedStudy

BLOCKS = {
    "docs/cluster.md": ["scale"],
    "README.md": ["speed"],
    "docs/benchmarks.md": ["speed-in-full", "peers"],
    "docs/reproduction.md": ["reproduction"],
    "docs/sparse-engines.md": ["sparse-speed"],
    "docs/departures.md": ["distances", "fp64", "w1-1e-6", "w2-1e-6"],
}


@pytest.fixture(scope="module")
def refresh():
    return loaded("docs/refresh.py")


@pytest.mark.parametrize(("page", "name"), [(p, n) for p, names in BLOCKS.items() for n in names])
def test_pages_have_their_places_and_they_are_filled(refresh, page, name):
    text = (ROOT / page).read_text()
    assert refresh.replace_block(text, name, "new") != text
    content = text.split(f"<!-- begin {name} -->")[1].split(f"<!-- end {name} -->")[0]
    assert content.strip()
    assert refresh.replace_block(text, name, content) == text


def test_filling_twice_is_filling_once(refresh):
    page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n"
    once = refresh.replace_block(page, "x", "new\nlines\n")
    assert once == page.replace("old", "new\nlines")
    assert refresh.replace_block(once, "x", "new\nlines\n") == once
    for wrong in ("none", "<!-- end x --><!-- begin x -->", page + page):
        with pytest.raises(ValueError, match="write each once"):
            refresh.replace_block(wrong, "x", "new")


def test_readme_shows_a_part_of_the_speeds(refresh):
    head = ["systems", "count", "peer", "median", "mean", "worst"]
    head += ["in turns: median", "in turns: worst", "beside: median", "missed"]
    rows = [["dense", "3", "numpy", "2.004", "2.1", "1.5", "1.8", "1.4", "1.2", "0"]]
    rows += [["dense, and more", "5", "numpy", *("3" * 6), "0"]]
    full, few = map(refresh.bare, refresh.speed_tables(head, rows))
    assert "| dense | 3 | numpy | 2.00 | 2.10 | 1.50 | 1.80 | 1.40 | 1.20 |" in full
    assert "missed" not in full
    assert few.splitlines()[2:] == ["| dense | 3 | numpy | 2.00 | 1.50 | 1.80 | 1.40 |"]


def test_readme_and_benchmarks_agree(refresh):
    """README's table is a part of the full one: nobody has changed one of them by hand."""
    pages = {"README.md": "speed", "docs/benchmarks.md": "speed-in-full"}
    few, full = (
        [[c.strip() for c in line.split(" | ")] for line in content.strip().splitlines()]
        for content in (
            (ROOT / page).read_text().split(f"<!-- begin {name} -->")[1].split("<!-- end")[0]
            for page, name in pages.items()
        )
    )
    last = len(few[0])  # a mean is left out
    assert few[2:] == [
        [*row[:4], *row[5:last], f"{row[last]} |"] for row in full[2:] if ", and " not in row[0]
    ]


def test_the_table_of_the_dense_experiment(refresh, tmp_path):
    settings = Settings(systems=8, seeds=2, episodes=20, sizes=(12, 24))
    result = reproduce(SimulatedStudy(settings, ("dense",)), tmp_path)["dense"]
    lines = refresh.bare(refresh.performance_table(result)).splitlines()
    assert len(lines) == 2 + 3 * len(result.ranges)
    assert all(line.count("|") == 8 for line in lines)
    assert "| 1.20e-14 |" in next(line for line in lines if line.startswith("| FP64 | low"))


def test_images_are_small():
    images = sorted((ROOT / "docs" / "images").iterdir())
    assert images
    for image in images:
        assert image.stat().st_size < 200_000, image


def test_how_it_decides_quotes_the_shipped_policy():
    text = (ROOT / "docs" / "how-it-decides.md").read_text().replace("\\[", "[").replace("\\]", "]")
    shipped = json.loads((ROOT / "src/roundwise/policies/default_policy.json").read_text())
    for row in shipped["provenance"]["comparison"]["rows"]:
        assert f"| {' | '.join(map(str, row))} |" in text
