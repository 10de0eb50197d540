"""Runs in native arithmetic: they agree with emulated ones, and their times add up."""

from types import SimpleNamespace

import numpy as np
import pytest
from hard_systems import spd
from scipy import sparse

import roundwise as rw
from roundwise import _kernels
from roundwise.algorithms import Shared, base, refinement, stage
from roundwise.algorithms.accuracy import ErrorMeasure
from roundwise.backends import Backend, NativeBackend, OperationBackend
from roundwise.backends.emulated import dense as operation_dense
from roundwise.backends.native import dense as native_dense
from roundwise.problems import (
    LinearSystem,
    convection_diffusion_2d,
    poisson_2d,
    random_sparse_spd,
    randsvd,
)

NATIVE = [NativeBackend(level) for level in _kernels.native_bf16_levels()]
each_backend = pytest.mark.parametrize("backend", NATIVE, ids=lambda b: b.bf16_instructions)


# --- native and emulated runs agree


GENERAL = [randsvd(n, 10.0**e, mode=3, rng=e) for e in range(1, 9) for n in (100, 150)]
DEFINITE = [LinearSystem.from_solution(spd(120, 10.0**e), np.ones(120)) for e in (1, 3, 5, 7)]
SPARSE_SPD = [poisson_2d(14), random_sparse_spd(150, 0.02, 1e-2, rng=0)]
SPARSE_GENERAL = [convection_diffusion_2d(12, 0.1, (3.0, -2.0))]
rule = rw.algorithms.DeploymentRule()
single = rw.algorithms.DeploymentRule(tolerance=2e-7)  # what FP32 residuals reach
RUNS = [
    (rw.GmresIR(tolerance=1e-8, stop=rule), GENERAL + DEFINITE + SPARSE_SPD + SPARSE_GENERAL),
    # LU-IR's rate is kappa u_f: near 1 it hangs on the last bits.
    (rw.LuIR(stop=rule), GENERAL[:14] + DEFINITE + SPARSE_SPD + SPARSE_GENERAL),
    (rw.CgIR(stop=rule), DEFINITE + SPARSE_SPD),
    (rw.GmresIR(tolerance=1e-3, stop=single), GENERAL + DEFINITE + SPARSE_SPD + SPARSE_GENERAL),
    (rw.LuIR(stop=single), GENERAL + DEFINITE + SPARSE_SPD + SPARSE_GENERAL),
    (rw.CgIR(stop=single), DEFINITE + SPARSE_SPD),
]


@pytest.mark.parametrize("factor", ["fp32", "fp64"])
@pytest.mark.parametrize(
    ("algorithm", "problems"),
    RUNS,
    ids=[f"{type(a).__name__}-{'fp64' if a.stop is rule else 'fp32'}" for a, _ in RUNS],
)
def test_native_and_emulated_runs_agree(algorithm, problems, factor):
    rest = "fp64" if algorithm.stop is rule else "fp32"
    action = [factor] + [rest] * (len(algorithm.stages) - 1)
    for problem in problems:
        emulated, found = (algorithm.run(problem, action, b) for b in ("operation", "native"))
        assert found.status is emulated.status is rw.OutcomeStatus.CONVERGED
        assert abs(found.outer_iterations - emulated.outer_iterations) <= 1
        fewest, most = sorted((found.inner_iterations, emulated.inner_iterations))
        assert most <= 1.3 * fewest + 2
        # Below the roundoff of the residual nothing is told.
        smaller, larger = sorted((found.nbe, emulated.nbe))
        assert larger <= 20 * max(smaller, rw.get_format(rest).unit_roundoff)


def test_native_and_emulated_failures_agree():
    zeros = np.diag([1.0, 0.0, 2.0])
    large = np.eye(3) * 1e39
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])
    for algorithm, A, first, status in (
        (rw.LuIR(), zeros, "fp64", "ZERO_PIVOT"),
        (rw.GmresIR(), zeros, "fp32", "ZERO_PIVOT"),
        (rw.LuIR(), large, "fp32", "OVERFLOW"),
        (rw.GmresIR(), large, "fp32", "OVERFLOW"),
        (rw.CgIR(), indefinite, "fp64", "NOT_POSITIVE_DEFINITE"),
        (rw.CgIR(), zeros, "fp32", "NOT_POSITIVE_DEFINITE"),
    ):
        for put in (np.asarray, sparse.csr_array):
            problem = LinearSystem(put(A), np.ones(len(A)))
            action = [first] + ["fp64"] * (len(algorithm.stages) - 1)
            runs = [algorithm.run(problem, action, b) for b in ("operation", "native")]
            assert [run.status.name for run in runs] == [status] * 2
            assert all(run.x is None and run.reason for run in runs)


@each_backend
def test_refinement_with_bf16_factors(backend):
    # GMRES-IR and LU-IR within their limits, kappa < u^(-1/3) u_f^(-2/3) and kappa < 1/u_f.
    for exponent in (1, 3, 5):
        problem = randsvd(200, 10.0**exponent, mode=3, rng=exponent)
        for inner in ("bf16", "fp32", "fp64"):
            algorithm = rw.GmresIR(tolerance=1e-2 if inner == "bf16" else 1e-4, stop=rule)
            if inner == "bf16" and exponent > 1:
                continue
            outcome = algorithm.run(problem, ("bf16", "fp64", inner, "fp64"), backend)
            assert outcome.status is rw.OutcomeStatus.CONVERGED
            assert outcome.nbe <= rule.target(200)
    outcome = rw.LuIR(stop=rule).run(randsvd(200, 10.0, mode=3, rng=1), "bf16-fp64-fp64", backend)
    assert outcome.status is rw.OutcomeStatus.CONVERGED


# --- times


@pytest.mark.parametrize("problem", [randsvd(60, 1e3, rng=0), poisson_2d(8)], ids=repr)
def test_times_of_native_runs(problem):
    algorithms = [rw.GmresIR(), rw.LuIR()] + [rw.CgIR()] * problem.is_sparse
    for algorithm in algorithms:
        shared = Shared()
        for _ in range(3):
            action = ["fp32"] + ["fp64"] * (len(algorithm.stages) - 1)
            outcome = algorithm.run(problem, action, "native", shared)
            assert set(outcome.timings) == {*algorithm.stages, "verify"}
            assert 0 < sum(outcome.timings.values()) <= outcome.seconds * (1 + 1e-9)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only stands in these modules, and methods that take a given time by it."""
    now = SimpleNamespace(seconds=0.0)

    def takes(owner, name, seconds):
        original = getattr(owner, name)

        def slow(*args, **kwargs):
            now.seconds += seconds
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, slow)

    for module in (base, refinement):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    monkeypatch.setattr(stage, "perf_counter", lambda: now.seconds)
    return takes


def test_shared_work_is_charged_to_each_run_and_diagnostics_to_none(clock):
    clock(Backend, "sizes", 2.0)
    clock(operation_dense.DenseMatrix, "__init__", 3.0)
    clock(operation_dense.DenseMatrix, "lu", 100.0)
    clock(operation_dense.DenseMatrix, "matvec", 5.0)
    clock(operation_dense.DenseFactors, "solve", 10.0)
    clock(OperationBackend, "axpy", 1.0)
    clock(ErrorMeasure, "backward", 7.0)
    for name in ("__init__", "forward", "componentwise"):
        clock(ErrorMeasure, name, 1000.0)
    problem, shared = randsvd(30, 10.0, rng=0), Shared()
    algorithm = rw.LuIR(stop=rw.algorithms.PaperRule(max_steps=1))
    # Factors, x_0 and one correction; norms, A in fp64 and one residual; one update.
    expected = {"factor": 3 + 100 + 2 * 10, "residual": 2 + 3 + 5 + 1, "update": 1, "verify": 7}
    for action in ("fp32-fp64-fp64", "fp32-fp64-fp64", "fp32-fp32-fp64"):
        outcome = algorithm.run(problem, action, shared=shared)
        assert outcome.timings == expected
        assert outcome.seconds == sum(expected.values())


def test_a_matrix_in_two_stages_is_charged_once(clock):
    clock(operation_dense.DenseMatrix, "__init__", 3.0)
    problem, shared = randsvd(30, 10.0, rng=0), Shared()
    algorithm = rw.GmresIR(stop=rw.algorithms.PaperRule(max_steps=1))
    for _ in range(2):
        outcome = algorithm.run(problem, "fp32-fp64-fp64-fp64", shared=shared)
        # In `factor`; in `gmres`, whose basis is a matrix of its own, made in every run.
        assert (outcome.timings["factor"], outcome.timings["gmres"]) == (3, 3)
        assert outcome.timings["residual"] == 0
        assert outcome.seconds == 9


def test_a_shared_failure_is_charged_to_each_run(clock):
    clock(operation_dense.DenseMatrix, "lu", 100.0)
    problem, shared = LinearSystem(np.diag([1.0, 0.0]), np.ones(2)), Shared()
    for _ in range(2):
        outcome = rw.LuIR().run(problem, "fp32-fp64-fp64", shared=shared)
        assert outcome.status is rw.OutcomeStatus.ZERO_PIVOT
        assert outcome.seconds == outcome.timings["factor"] == 100


def test_conversions_of_native_matrices_are_charged_to_each_run(clock):
    # A dense matrix is stored in its format when it is first multiplied with, or asked to be.
    clock(native_dense, "stored", 50.0)
    clock(native_dense, "work_array", 50.0)  # what is factorized is a copy
    problem, shared = randsvd(30, 10.0, rng=0), Shared()
    algorithm = rw.LuIR(stop=rw.algorithms.PaperRule(max_steps=1))
    for _ in range(3):
        outcome = algorithm.run(problem, "fp64-fp64-fp32", "native", shared)
        assert outcome.timings["residual"] == 50
        assert outcome.timings["factor"] == 50
        assert outcome.seconds == 100
