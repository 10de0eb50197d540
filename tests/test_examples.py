"""The examples run, and say what they promise."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("solve_dense", "passed the gate"),
        ("solve_many", "20 columns, largest residual"),
        ("solve_sparse", "passed the gate"),
        ("solve_newton", "correction"),
        ("trained_policy", "passed the gate"),
        ("custom_algorithm", "learned:    fp32-fp32  error"),
        ("custom_policy", "has the largest expected reward"),
    ],
)
def test_example(name, promise, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert promise in capsys.readouterr().out


def test_a_policy_of_your_own_fits_on_a_screen():
    text = (EXAMPLES / "custom_policy.py").read_text()
    own = text[text.index("class MeanReward") : text.index("def main")]
    assert len(own.strip().splitlines()) <= 30
