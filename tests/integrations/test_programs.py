"""Programs of other people's packages run unchanged under Roundwise, and print what they print."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

TOLERANCES = {
    "antenna": ("scipy", 1e-6),
    "circuit": ("scipy", 1e-6),
    "convex": ("cvxpy", 1e-6),
    "finite_elements": ("skfem", 1e-7),
    "finite_volumes": ("fipy", 1e-8),
    "gaussian_process": ("sklearn", 1e-4),  # the fit stops at 1e-5
    "kernel_ridge": ("sklearn", 1e-6),
    "regressions": ("statsmodels", 1e-6),
    "spectra": ("scipy", 1e-6),
    "stiff_equations": ("scipy", 1e-5),  # the integrator's own is 1e-6 a step
}
"""The package that a program needs, and by how much its printed numbers may differ."""


def printed(*arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def test_each_program_is_listed():
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(TOLERANCES)


@pytest.mark.parametrize("name", TOLERANCES)
def test_it_prints_the_same(name):
    package, tolerance = TOLERANCES[name]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    path = str(PROGRAMS / f"{name}.py")
    plain, _ = printed(path)
    # --check asks ours from the first call on, however short the program is
    under, table = printed("-m", "roundwise", "run", "--check", path)
    assert NUMBER.sub("#", under) == NUMBER.sub("#", plain)
    theirs, ours = ([float(one) for one in NUMBER.findall(text)] for text in (plain, under))
    assert theirs
    assert ours == pytest.approx(theirs, rel=tolerance, abs=1e-12)
    assert "roundwise:" in table
