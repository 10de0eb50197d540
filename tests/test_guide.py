"""The guide: its examples are run, its pages are short, and they link to files."""

import doctest
import re
from pathlib import Path

import pytest

import roundwise as rw

ROOT = Path(__file__).parents[1]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
LONGEST, LONGEST_README = 150, 120
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_examples_of_the_guide(page, monkeypatch):
    named = dict(rw.formats.NAMED_FORMATS)  # formats that a page registers are forgotten
    monkeypatch.setattr("roundwise.formats.NAMED_FORMATS", named)
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example)
    assert not failed


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_pages_of_the_guide_are_short(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README
