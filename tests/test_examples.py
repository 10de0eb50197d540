"""The examples of the front door run, and say what they promise."""

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
    ],
)
def test_example(name, promise, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert promise in capsys.readouterr().out
