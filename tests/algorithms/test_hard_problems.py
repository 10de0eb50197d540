"""Real matrices and degenerate systems: a good answer, or a status that says why not."""

import csv
import os
from pathlib import Path

import numpy as np
import pyamg
import pytest
from cases import ALGORITHMS, BACKENDS, supports
from scipy import linalg, sparse

import roundwise as rw
from roundwise.problems import LinearSystem, poisson_2d, randsvd

MATRICES = Path(
    os.environ.get("ROUNDWISE_MATRICES", Path(__file__).parents[3] / "shared" / "matrices")
)
NAMES = [
    "bfwb398", "cdde2", "circuit204", "fs_183_1", "fs_680_2", "gre_216b", "hangGlider_1",
    "lns_131", "lund_a", "mcca", "mcfe", "nnc666", "orsirr_1", "rajat19", "sherman2", "steam1",
    "str_600", "tomography", "west0156", "west0989", "add32", "circuit_1", "gemat11", "lns_3937",
    "orani678", "saylr4", "sherman3", "sherman5", "west2021",
]  # fmt: skip
GOOD = 1e-14
algorithm = rw.GmresIR(
    tolerance=1e-8, restart=50, stop=rw.algorithms.DeploymentRule(tolerance=GOOD, max_steps=10)
)
ACTIONS = ["fp64-fp64-fp64-fp64", "fp32-fp64-fp64-fp64", "bf16-fp64-fp64-fp64"]
ACTIONS += ["fp16-fp64-fp64-fp64", "bf16-fp32-fp32-fp64", "fp32-fp32-fp32-fp32"]


def check(problem):
    """FP64 reaches a good answer; others do too, or do not say they did."""
    for backend in ("operation", "native"):
        runs = [a for a in ACTIONS if supports(backend, rw.get_format(a[:4]), problem.is_sparse)]
        outcomes = algorithm.run_all(problem, runs, backend)
        assert outcomes[0].status is rw.OutcomeStatus.CONVERGED
        for outcome in outcomes:
            good = outcome.nbe <= GOOD
            assert (outcome.status is rw.OutcomeStatus.CONVERGED) <= good
            assert not outcome.status.failed or outcome.reason
            assert outcome.x is None or np.isfinite(outcome.x).all()


@pytest.mark.skipif(not MATRICES.is_dir(), reason="no ../shared/matrices; set ROUNDWISE_MATRICES")
@pytest.mark.parametrize("name", NAMES)
def test_application_matrices(name):
    check(rw.problems.read_matrix_market(MATRICES / f"{name}.mtx.gz"))


@pytest.mark.skipif(not MATRICES.is_dir(), reason="no ../shared/matrices; set ROUNDWISE_MATRICES")
def test_the_list_has_large_ones():
    with (MATRICES / "index.csv").open() as file:
        sizes = {row["name"]: int(row["n"]) for row in csv.DictReader(file)}
    assert sum(sizes[name] > 2000 for name in NAMES) >= 5


@pytest.mark.parametrize("name", ["airfoil", "bar", "knot", "unit_square", "unit_cube"])
def test_pyamg_examples(name):
    A = sparse.csr_array(pyamg.gallery.load_example(name)["A"]).astype(np.float64)
    A = A + 1e-3 * sparse.eye_array(A.shape[0])  # some are pure Neumann problems
    rng = np.random.default_rng(0)
    check(LinearSystem.from_solution(A, rng.standard_normal(A.shape[0]), name=name))


# Degenerate systems


def run(problem, action="fp64-fp64-fp64-fp64", backend="operation"):
    return algorithm.run(problem, action, backend)


def both_kinds(A, b=None):
    b = np.ones(len(A)) if b is None else b
    return [LinearSystem(A, b), LinearSystem(sparse.csr_array(A), b)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "A",
    [
        np.zeros((3, 3)),
        np.diag([1.0, 0.0, 2.0]),
        np.array([[1.0, 2.0], [2.0, 4.0]]),
        np.array([[0.0]]),
        np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]),
    ],
    ids=["zero", "zero row", "rank one", "1 x 1", "zero row inside"],
)
def test_exactly_singular(A, backend):
    for problem in both_kinds(A):
        outcome = run(problem, backend=backend)
        assert outcome.status is rw.OutcomeStatus.ZERO_PIVOT
        assert outcome.x is None
        assert outcome.nbe == np.inf
        assert "zero_pivot" in outcome.reason


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_one_equation_and_zero_right_hand_side(algorithm, backend):
    action = "-".join(["fp64"] * len(algorithm.stages))
    for problem in both_kinds(np.array([[4.0]]), np.array([1.0])):
        outcome = algorithm.run(problem, action, backend)
        assert outcome.x == [0.25]
        assert outcome.nbe <= 1e-29  # the gate's upper bound is never quite zero
        assert outcome.cbe == 0 or isinstance(algorithm, rw.LsIR)  # which has none
        assert np.isnan(outcome.ferr)  # the truth is not known
    spd = poisson_2d(4)
    for A in (spd.A, spd.A.toarray()):
        outcome = algorithm.run(LinearSystem(A, np.zeros(16), np.zeros(16)), action, backend)
        assert not outcome.x.any()
        assert (outcome.nbe, outcome.ferr) == (0, 0)
        assert outcome.cbe == 0 or isinstance(algorithm, rw.LsIR)
        assert outcome.status is rw.OutcomeStatus.CONVERGED


def test_numerically_singular_systems_are_solved_backward_stably():
    for problem in (
        randsvd(40, 1e18, mode=2, rng=0),
        LinearSystem(linalg.hilbert(20), np.ones(20)),
        LinearSystem(np.vander(np.linspace(1, 2, 25)), np.ones(25)),
    ):
        outcome = run(problem)
        assert outcome.status is rw.OutcomeStatus.CONVERGED
        assert outcome.nbe <= GOOD


def test_growth_is_survived_or_named():
    # Wilkinson's matrix: the last column doubles in every step; bf16 keeps 8 bits of it.
    n = 60
    A = np.tril(-np.ones((n, n)), -1) + np.eye(n)
    A[:, -1] = 1.0
    rng = np.random.default_rng(1)
    problem = LinearSystem.from_solution(A, rng.standard_normal(n))
    for action in ("fp64-fp64-fp64-fp64", "bf16-fp64-fp64-fp64", "fp16-fp64-fp64-fp64"):
        outcome = run(problem, action)
        reached = outcome.nbe <= GOOD
        assert (outcome.status is rw.OutcomeStatus.CONVERGED) == reached
    assert run(problem, "fp16-fp64-fp64-fp64").status is rw.OutcomeStatus.OVERFLOW


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_badly_scaled(scale):
    base = randsvd(30, 100, rng=3)
    problem = LinearSystem.from_solution(base.A * scale, base.x_true)
    assert run(problem).nbe <= GOOD
    low = run(problem, "fp32-fp64-fp64-fp64")
    expected = rw.OutcomeStatus.OVERFLOW if scale > 1 else rw.OutcomeStatus.ZERO_PIVOT
    assert low.status is expected
    scaled = rw.GmresIR(stop=rw.algorithms.DeploymentRule(tolerance=GOOD), equilibrate=True)
    assert scaled.run(problem, "bf16-fp64-fp64-fp64").status is rw.OutcomeStatus.CONVERGED


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_problems_are_refused(bad):
    for A, b in ((np.array([[bad]]), np.ones(1)), (np.ones((1, 1)), np.array([bad]))):
        with pytest.raises(ValueError, match="finite"):
            LinearSystem(A, b)
