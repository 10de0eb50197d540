"""Type checkers know what the front door returns."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROGRAM = """
from typing import Any
import numpy as np
from numpy.typing import NDArray
import roundwise as rw

A, stack, b = np.eye(3), np.ones((2, 3, 3)), np.ones(3)

def told(unknown: NDArray[np.float64], anything: Any, solver: rw.Solver) -> None:
    reveal_type(rw.solve(A, b))  # ndarray
    reveal_type(rw.solve(stack, b, tol=1e-9))  # ndarray
    reveal_type(rw.solve(A, b, full_output=False))  # ndarray
    reveal_type(rw.solve(A, [1.0, 2.0, 3.0]))  # Any
    reveal_type(rw.solve(A, b, full_output=True))  # Solution
    reveal_type(rw.solve(unknown, b, full_output=True, policy="fp32"))  # Solution
    reveal_type(rw.solve([[1.0]], [1.0], full_output=True))  # Solution
    reveal_type(rw.solve(stack, b, full_output=True))  # StackedSolution
    reveal_type(rw.solve(A, b, full_output=bool(anything)))  # Any
    reveal_type(rw.lstsq(A, b))  # ndarray
    reveal_type(rw.lstsq(A, b, full_output=True))  # LeastSquaresSolution
    reveal_type(rw.factor(A))  # Factorization
    reveal_type(rw.factor(A, memory="4GB"))  # Factorization
    reveal_type(rw.factor(unknown, columns=3).solve(b))  # ndarray
    reveal_type(rw.factor(A).solve(b, "T", full_output=True))  # Solution
    reveal_type(rw.factor(stack))  # StackedFactorization
    reveal_type(rw.factor(stack).solve(b, full_output=True))  # StackedSolution
    reveal_type(solver.solve(A, b))  # ndarray
    reveal_type(solver.solve(A, b, memory=4e9))  # ndarray
    reveal_type(solver.solve(A, b, full_output=True))  # Solution
    reveal_type(solver.solve(stack, b, full_output=True))  # StackedSolution
    reveal_type(solver.lstsq(A, b, full_output=True))  # LeastSquaresSolution

rw.solve(A, b, tolerance=1e-9)  # type: ignore[call-overload]
"""


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_what_mypy_reveals(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": f"{ROOT / 'src'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    revealed = re.findall(r':(\d+): note: Revealed type is "(?:\w+\.)*(\w+)', done.stdout)
    lines = PROGRAM.splitlines()
    wanted = [(i, line) for i, line in enumerate(lines, 1) if "reveal_type" in line]
    assert [(int(i), name) for i, name in revealed] == [
        (i, line.rpartition("# ")[2]) for i, line in wanted
    ]
