"""Forecasts of memory against the factors themselves, and against peaks of processes."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from roundwise.backends import NativeBackend
from roundwise.backends.engines.orderings import Orders
from roundwise.backends.native.sparse import EngineAnalysis
from roundwise.formats import FP32, FP64
from roundwise.methods import METHODS, Shape
from roundwise.methods.sparse import ANALYSED
from roundwise.problems import laplace_3d, poisson_2d
from roundwise.problems.pde import convection_diffusion_3d

MATRICES = {
    "cube": lambda: laplace_3d(26),
    "square": lambda: poisson_2d(200).A,
    "flow": lambda: convection_diffusion_3d(22, 10.0),
    "line": lambda: sparse.csr_array(
        sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(200_000,) * 2)
    ),
}

PEAK = """
import sys
import numpy as np
import roundwise as rw
from tests.methods.test_memory import dense, MATRICES

name, action = sys.argv[1:]
A = MATRICES[name]() if name in MATRICES else dense(name)
b, lines = np.ones(A.shape[0]), open("/proc/self/statm")
rw.set_num_threads(2)
small = rw.problems.laplace_3d(4)
rw.solve(small, np.ones(64)), rw.solve(np.eye(30) + 1.0, np.ones(30))
before = int(lines.read().split()[1]) * 4096
open("/proc/self/clear_refs", "w").write("5")  # forgets the peak so far
solution = rw.solve(A, b, policy=action, full_output=True)
assert solution.action == action, solution.action
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024 - before)
"""


def dense(name):
    n = 2000
    A = np.random.default_rng(0).standard_normal((n, n))
    return A + 200.0 * np.eye(n) if name == "general" else A @ A.T / n + 2.0 * np.eye(n)


def shape_of(name):
    if name not in MATRICES:
        return Shape(2000, 2000**2)
    A = MATRICES[name]()
    orders = Orders(A)
    filled, (stored, dissected) = orders.counts["factor_entries"], orders.stored
    n = A.shape[0]
    return Shape(n, A.nnz, filled=filled, stored=stored, nd_stored=dissected)


def peak(name, action):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peaks of memory are measured on Linux")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PEAK, name, action]
    return float(subprocess.run(command, check=True, capture_output=True, cwd=root).stdout)


def forecast(name, action):
    method, _, formats = action.partition(":")
    return METHODS[method].memory(shape_of(name), formats.partition("-")[0])


@pytest.mark.parametrize("fmt", ["fp32", "fp64"])
@pytest.mark.parametrize(
    ("name", "method"),
    [
        *(("general", "lu"), ("definite", "cholesky")),
        *(("cube", "cholesky/amd"), ("flow", "lu/amd")),
    ],
)
def test_forecasts_of_direct_methods_are_within_15_per_cent(name, method, fmt):
    action = f"{method}:{fmt}-fp64-fp64-fp64"
    assert forecast(name, action) == pytest.approx(peak(name, action), rel=0.15)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *(("cube", "multigrid/sa:fp32"), ("square", "multigrid/sa:fp64")),
        *(("line", "multigrid/sa:fp32"), ("flow", "ilu/0:fp32"), ("cube", "ic/2:fp64")),
        *(("flow", "superlu/colamd:fp64"), ("square", "superlu/mmd:fp32")),
    ],
)
def test_other_forecasts_are_upper_bounds_at_most_twice_too_large(name, method):
    action = f"{method}-fp64-fp64-fp64"
    taken, expected = peak(name, action), forecast(name, action)
    assert taken <= expected <= 2 * taken


@pytest.mark.parametrize("fmt", [FP32, FP64])
@pytest.mark.parametrize("name", ["cube", "square", "flow"])
@pytest.mark.parametrize("kind", ["cholesky", "ldl", "lu"])
def test_what_our_engines_store_is_known_before(name, kind, fmt):
    if name == "flow" and kind != "lu":
        return
    A, backend, method = MATRICES[name](), NativeBackend(), f"{kind}/amd"
    orders = Orders(A, matched=kind == "lu")
    assert orders.counts
    shape = Shape(A.shape[0], A.nnz, stored=orders.stored[0])
    factors = EngineAnalysis(backend, A, method, orders).factorize(A, fmt)
    expected = METHODS[method].memory(shape, fmt.name) - ANALYSED * A.nnz
    assert expected == pytest.approx(fmt.storage_bytes * factors.entries, rel=0.02)


def test_nested_dissection_is_forecast_by_its_own_entries():
    A = laplace_3d(40)
    orders = Orders(A)
    _, dissected = orders.stored if orders.counts else (0.0, 0.0)
    factors = EngineAnalysis(NativeBackend(), A, "cholesky/nd", orders).factorize(A, FP32)
    assert dissected == pytest.approx(factors.entries, rel=0.15)


def test_nobody_knows_what_was_not_counted():
    for name, method in METHODS.items():
        if method.sparse and method.memory is not None and name[:2] not in ("mu", "ic", "il", "am"):
            assert method.memory(Shape(100, 500), "fp64") == math.inf


def test_dense_forecasts_are_those_of_the_matrix():
    assert METHODS["lu"].memory(Shape(10**5, 10**10), "fp64") == pytest.approx(8e10, rel=0.02)
    assert METHODS["lu"].memory(Shape(10**5, 10**10), "fp32") == pytest.approx(4e10, rel=0.02)
    assert METHODS["banded"].memory(Shape(1000, 10**6, diagonals=3), "fp64") == 36_000
