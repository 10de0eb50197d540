"""NumPy's and SciPy's own tests of their solvers, run against `roundwise.solve`.

Run as a program, it runs all of them (a minute) and writes the table of docs/switching.md. The
packages that are installed bring the tests. A thin adapter stands where a test calls the peer's
solver; `DIFFERENCES` says of every test that Roundwise does not pass why that is so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from scipy import sparse

import roundwise as rw

SCIPY = tuple(map(int, scipy.__version__.split(".")[:2]))
PAGE = Path(__file__).parents[1] / "docs" / "switching.md"


def numpy_solve(a, b):
    return rw.solve(a, b)


def scipy_solve(a, b, lower=False, overwrite_a=False, overwrite_b=False, check_finite=True, **rest):
    """`scipy.linalg.solve`: a scalar a, which Roundwise refuses, is made a matrix."""
    a = np.atleast_2d(a) if not hasattr(a, "ndim") else a
    if np.size(a) == 1 and np.ndim(b) < 2:  # SciPy divides b, of any length, by a number
        a = np.asarray(a).reshape(1, 1)
        return rw.solve(a, np.reshape(b, (1, -1)), **rest)[0]
    overwrite = {"overwrite_a": overwrite_a, "overwrite_b": overwrite_b}
    return rw.solve(a, b, lower=lower, check_finite=check_finite, **overwrite, **rest)


def spsolve(A, b, permc_spec=None, use_umfpack=True):
    """`scipy.sparse.linalg.spsolve`, which takes a dense A, too."""
    return rw.solve(A if sparse.issparse(A) else sparse.csc_array(A), b)


@dataclass(frozen=True)
class Suite:
    """Tests of a peer, and what stands in for its solver."""

    name: str
    module: str
    tests: str  # the class
    patched: str  # the module whose name is replaced, and which
    attribute: str


SUITES = (
    Suite(
        "numpy.linalg.solve",
        "numpy.linalg.tests.test_linalg",
        "TestSolve",
        "numpy.linalg.tests.test_linalg",
        "linalg",
    ),
    Suite(
        "numpy.linalg.solve, np.matrix",
        "numpy.matrixlib.tests.test_matrix_linalg",
        "TestSolveMatrix",
        "numpy.linalg.tests.test_linalg",
        "linalg",
    ),
    Suite(
        "scipy.linalg.solve",
        "scipy.linalg.tests.test_basic",
        "TestSolve",
        "scipy.linalg.tests.test_basic",
        "solve",
    ),
    Suite(
        "scipy.sparse.linalg.spsolve",
        "scipy.sparse.linalg._dsolve.tests.test_linsolve",
        "TestLinsolve",
        "scipy.sparse.linalg._dsolve.tests.test_linsolve",
        "spsolve",
    ),
)

REPLACED = (
    ("numpy.linalg", "numpy.linalg.tests.test_linalg"),
    ("scipy.linalg: solve, inv, det, lstsq, solve_banded", "scipy.linalg.tests.test_basic"),
    ("scipy.linalg: LU", "scipy.linalg.tests.test_decomp_lu"),
    ("scipy.linalg: Cholesky", "scipy.linalg.tests.test_decomp_cholesky"),
    ("scipy.sparse.linalg", "scipy.sparse.linalg._dsolve.tests.test_linsolve"),
)
"""Whole files of tests that are run while `rw.replacing_numpy()` lasts, with ours asked first for
systems of every size."""

STAND_INS = {
    "linalg": SimpleNamespace(**{**vars(np.linalg), "solve": numpy_solve}),
    "solve": scipy_solve,
    "spsolve": spsolve,
}

SCALING = (
    "they want a warning of a matrix that is only badly scaled; its answers here are right to the "
    "last digits"
)
DIFFERENCES = (
    (
        r"test_overwrite_args\[\w+-\d-[CF]-\w+-F-float-\w+-True\]",
        "they want A to be destroyed where it may be overwritten; its numbers verify x",
    ),
    (r"test_ill_condition_warning|TestSolve::test_diagonal|TestSolve::test_tridiagonal", SCALING),
    (
        r"test_posdef_not_posdef",
        "they want an error where A is said to be positive definite and is not; x is returned, as "
        "it passes the gate",
    ),
    (
        r"test_structure_detection\[\w+-\w+-True-nrhs\d-[\w ]+-complex128\]"
        r"|TestSolve::test_transposed_notimplemented",
        "they want the transpose of a complex matrix to be refused; it is solved with",
    ),
    (
        r"TestLstsq::test_simple_overdet",
        "they want the residuals of two answers to agree to the last bits",
    ),
    (r"TestLinsolve::test_singular", "they want NaN for a singular matrix; it is a `SolveFailed`"),
)
"""Patterns of tests that Roundwise is not meant to pass, and why: these do not apply."""

if SCIPY < (1, 17):
    STACKS = "they want b of shape (n, k, l) to be k l columns; SciPy itself now reads a stack"
    DIFFERENCES += ((r"TestSolve::test_multiple_rhs", STACKS),)
if SCIPY >= (1, 18):  # this test now sets an entry of a band to 1e40
    DIFFERENCES += ((r"TestSolve::test_banded", SCALING),)


@dataclass(frozen=True)
class Result:
    suite: str
    test: str
    passed: bool
    reason: str  # of a failure: why it does not apply, or the error's last line

    @property
    def applies(self) -> bool:
        return self.passed or self.reason not in {why for _, why in DIFFERENCES}


def results(suites: Iterable[Suite] = SUITES, only: str = "") -> list[Result]:
    """Of the tests whose name matches `only`; those that the peer skips are left out."""
    return [result for suite in suites for result in _run(suite, only)]


def replaced_results(name: str, module: str, only: str = "") -> list[Result]:
    """Of a file of `REPLACED`."""
    return _run(Suite(name, module, "", "", ""), only)


def _run(suite: Suite, only: str) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
            "PEER_SUITE": suite.name,
            "PEER_REPORT": str(report),
        }
        options = ["-q", "-p", "peer_suites", "-p", "no:cacheprovider", "-W", "ignore", "-k", only]
        tests = f"{suite.module}::{suite.tests}" if suite.tests else suite.module
        command = [sys.executable, "-m", "pytest", "--pyargs", tests, *options]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(
                f"{suite.name} did not run: {done.stdout[-800:]}{done.stderr[-800:]}"
            )
        found = json.loads(report.read_text())
    return [Result(suite.name, test, not error, _reason(test, error)) for test, error in found]


def _reason(test: str, error: str) -> str:
    if not error:
        return ""
    for pattern, why in DIFFERENCES:
        if re.search(pattern, test):
            return why
    return error


def table(found: list[Result]) -> str:
    """How many pass, of those that apply, and why the others do not."""
    lines = ["| tests of | pass | of those that apply | what fails |", "|---|--:|--:|---|"]
    for suite in SUITES:
        mine = [one for one in found if one.suite == suite.name]
        passed, applying = sum(one.passed for one in mine), [one for one in mine if one.applies]
        failed = [one for one in applying if not one.passed]
        names = ", ".join(f"`{one.test}`" for one in failed[:3]) + (", ..." if failed[3:] else "")
        lines.append(f"| `{suite.name}` | {passed} | {len(applying)} | {names or '-'} |")
    lines += ["", "Tests that do not apply, and why:", ""]
    for why in dict.fromkeys(why for _, why in DIFFERENCES):
        count = sum(one.reason == why for one in found)
        lines.append(f"- {count}: {why}.")
    return "\n".join(lines)


# The plugin: pytest imports this file as `peer_suites` in the process that runs a peer's tests.

if "PEER_SUITE" in os.environ:
    _FOUND: dict[str, str] = {}
    _RUNNING = next((one for one in SUITES if one.name == os.environ["PEER_SUITE"]), None)
    if _RUNNING is None:
        from roundwise.integrations import replaced

        for _name in ("SOLVE", "COMPLEX", "FACTOR", "CHOLESKY", "LSTSQ", "SPSOLVE", "SPLU"):
            setattr(replaced, f"{_name}_FROM", 1)
        replaced.SMALL = 0
        rw.solve(np.eye(2), np.ones(2))  # it is loaded
        _LASTING = rw.replacing_numpy()
        _LEDGER = _LASTING.__enter__()

    @pytest.fixture(autouse=True)
    def _stand_in(monkeypatch):
        if _RUNNING is not None:
            module = sys.modules[_RUNNING.patched]
            monkeypatch.setattr(module, _RUNNING.attribute, STAND_INS[_RUNNING.attribute])

    def pytest_runtest_logreport(report):
        name = report.nodeid.partition("::")[2]
        if report.when == "call" and not report.skipped:
            _FOUND[name] = "" if report.passed else _last_line(report)
        elif report.failed:  # in setup or teardown
            _FOUND[name] = _last_line(report)

    def _last_line(report):
        crash = getattr(report.longrepr, "reprcrash", None)
        return str(crash.message if crash else report.longrepr)[:5000]

    def pytest_sessionfinish(session):
        Path(os.environ["PEER_REPORT"]).write_text(json.dumps(list(_FOUND.items())))


if __name__ == "__main__":
    measured = results()
    for one in measured:
        if one.applies and not one.passed:
            print(f"{one.suite}  {one.test}: {one.reason.splitlines()[0]}")
    text = PAGE.read_text()
    begin, end = "<!-- begin peers -->\n", "<!-- end peers -->"
    head, _, rest = text.partition(begin)
    PAGE.write_text(head + begin + table(measured) + "\n" + end + rest.partition(end)[2])
    print(table(measured))
