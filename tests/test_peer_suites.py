"""NumPy's and SciPy's own tests pass, but for differences that docs/switching.md tells."""

import pytest
from peer_suites import PAGE, REPLACED, SUITES, replaced_results, results

QUICK = "not test_overwrite_args and not test_structure_detection"
"""A thousand tests of `scipy.linalg.solve` that ``python tests/peer_suites.py`` runs, too."""


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_what_applies_passes(suite):
    found = results([suite], QUICK)
    assert found
    failed = {one.test: one.reason for one in found if one.applies and not one.passed}
    assert not failed


@pytest.mark.parametrize(("name", "module"), REPLACED, ids=[name for name, _ in REPLACED])
def test_whole_files_pass_under_replacement(name, module):
    found = replaced_results(name, module, QUICK)
    assert found
    assert not {one.test: one.reason for one in found if one.applies and not one.passed}


def test_the_page_has_the_table():
    text = PAGE.read_text()
    table = text.partition("<!-- begin peers -->")[2].partition("<!-- end peers -->")[0]
    assert all(f"`{suite.name}`" in table for suite in SUITES)
