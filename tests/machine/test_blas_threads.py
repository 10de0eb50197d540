"""Solves with few columns leave BLAS's threads asleep: awake, they spin beside ours in the next."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roundwise.backends.native.dense import has_own_lu
from roundwise.machine import blas

SCRIPT = """
import os, time
from pathlib import Path

import numpy as np

import roundwise as rw


def of_blas(file):
    "What Linux tells in such a file of threads that are neither ours nor the one that calls."
    for task in Path("/proc/self/task").iterdir():
        ours = (task / "comm").read_text().startswith("roundwise")
        if int(task.name) != os.getpid() and not ours:
            yield (task / file).read_text()


def seconds():
    return sum(int(text.split()[0]) for text in of_blas("schedstat")) / 1e9


def until_asleep():
    "BLAS's threads spin when they are started, and after a call."
    while any(text.rsplit(")", 1)[1].split()[0] != "S" for text in of_blas("stat")):
        time.sleep(0.02)


rw.set_num_threads(2)
rng = np.random.default_rng(0)
until_asleep()
for n in (300, 700, 1600):
    A, B = rng.standard_normal((n, n)), rng.standard_normal((n, 4))
    for name, M, b, options in (
        ("one column", A, B[:, 0], {}),
        ("four columns", A, B, {}),
        ("three columns of a symmetric matrix", A + A.T, B[:, :3], {}),
        ("a diagonal that is heavy", np.eye(n) + A / n, B[:, 0], {}),
        ("positive definite", np.eye(n) + (A + A.T) / n, B[:, 0], {}),
        ("full output", A, B[:, 0], {"full_output": True}),
        ("forward", A, B[:, 0], {"accuracy": "forward"}),
    ):
        before = seconds()
        rw.solve(M, b, **options)
        until_asleep()
        if (ran := seconds() - before) > 0:
            print(f"n = {n}, {name}: BLAS's threads ran for {ran:.3f} s")
"""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells of threads")
@pytest.mark.skipif(not has_own_lu(), reason="LU is LAPACK's on this processor")
@pytest.mark.skipif(blas.bundled("numpy") is None, reason="NumPy uses another BLAS than OpenBLAS")
def test_solves_leave_threads_of_blas_asleep():
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment["OPENBLAS_NUM_THREADS"] = "2"
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
