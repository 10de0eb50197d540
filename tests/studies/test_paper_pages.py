"""The companion pages of the paper are what the stored results say."""

import re

import pytest
from scripts import ROOT, loaded

from roundwise_studies import departures
from roundwise_studies.native.published import SWITCHES


@pytest.fixture(scope="module")
def pages():
    return loaded("docs/refresh_paper.py")


@pytest.mark.parametrize("name", ["paper-tables.md", "paper-claims.md", "paper-native.md"])
def test_pages_are_made_from_the_stored_results(pages, name):
    assert (ROOT / "docs" / name).read_text() == pages.PAGES[name]()
    assert set(pages.PAGES) == {"paper-tables.md", "paper-claims.md", "paper-native.md"}


def test_every_table_of_the_paper_has_its_place():
    text = (ROOT / "docs" / "paper-tables.md").read_text()
    for number in range(2, 10):
        assert f"## Table {number}: " in text
    assert "| 1e-8 | RL(W2) | low | paper | 89.2 |" in text  # as printed


def test_stored_results_are_of_the_papers_settings(pages):
    settings = pages.load("tables")["settings"]
    assert (settings["systems"], settings["seeds"], settings["actions"]) == (100, 10, 25)
    native = pages.load("native")["generators"]["released"]["settings"]
    assert (native["train"], native["test"], native["repeats"]) == (50, 100, 3)
    for stored in ("tables", "claims", "native"):
        assert pages.load(stored)["origin"]["machine"]


def test_every_claim_has_a_verdict_an_interval_and_the_papers(pages):
    claims = pages.load("claims")["claims"]
    assert len(claims) > 20
    for claim in claims:
        assert claim["verdict"] in pages.SIGNS
        for place in pages.rows_of(claim["places"]):
            assert place["low"] <= place["high"]
    assert sum(claim["on_the_papers_numbers"] is not None for claim in claims) > 15


def test_the_page_of_three_columns_names_every_switch():
    text = (ROOT / "docs" / "text-code-ours.md").read_text()
    for name in (*dict(departures.RELEASED), *SWITCHES):
        assert f"`{name}`" in text
    assert text.count("**our choice**") >= 6
    assert "## Errata" in text


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("paper-*.md")))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w-]+\.md)", page.read_text()):
        assert (page.parent / target).exists()


@pytest.mark.parametrize("name", ["beyond"])
def test_other_pages_are_made_from_their_stored_results(name):
    """docs/beyond-the-paper.md: what docs/paper/beyond.json says, part by part."""
    program = loaded(f"docs/refresh_{name}.py")
    text = (ROOT / "docs" / "beyond-the-paper.md").read_text()
    assert text == program.page()
    for part, stored in program.load(name)["parts"].items():
        assert stored["machine"], part
        assert program.rows_of(stored["rows"]), part
