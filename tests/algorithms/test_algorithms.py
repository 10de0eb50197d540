"""Refinement methods against their theory: errors and iteration counts."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
from cases import ALGORITHMS, BACKENDS, supports
from scipy import sparse
from scipy.sparse.linalg import spsolve

import roundwise as rw
from roundwise.algorithms import Shared, Stage
from roundwise.algorithms.krylov import gmres
from roundwise.algorithms.stopping import Progress
from roundwise.backends.emulated import dense as operation_dense
from roundwise.problems import (
    LinearSystem,
    convection_diffusion_2d,
    poisson_2d,
    random_sparse_spd,
    randsvd,
)
from roundwise_studies.datasets import dense_set

U = rw.FP64.unit_roundoff
FP64_ACTION = "fp64-fp64-fp64-fp64"
gmres_ir = rw.GmresIR(tolerance=1e-8, stop=rw.algorithms.DeploymentRule(max_steps=10))
lu_ir = rw.LuIR(stop=rw.algorithms.DeploymentRule(max_steps=100))
converged = rw.OutcomeStatus.CONVERGED


def with_kappa(exponent, mode=3, n=100):
    return randsvd(n, 10.0**exponent, mode=mode, rng=exponent)


# Theory: Carson & Higham 2018 for LU-IR, kappa < 1/u_f; Amestoy et al. 2024 for GMRES-IR whose
# preconditioner is applied in the working precision, kappa < u^(-1/3) u_f^(-2/3).


@pytest.mark.parametrize("mode", [2, 3])
@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16, rw.FP32], ids=str)
def test_lu_ir_converges_up_to_the_inverse_of_the_factor_roundoff(fmt, mode):
    limit = np.log10(1 / fmt.unit_roundoff)
    for exponent in range(1, 13):
        outcome = lu_ir.run(with_kappa(exponent, mode), (fmt, "fp64", "fp64"))
        if exponent <= limit - 0.2:
            # Theory's contraction is of the order kappa u_f: far from the limit, few steps.
            assert outcome.status is converged
            assert outcome.nbe <= lu_ir.stop.target(100)
            rate = 10.0 ** (exponent - limit)
            assert outcome.outer_iterations <= 3 + 12 / -np.log10(min(0.7, rate))
        elif exponent >= limit + 1.5:
            assert outcome.status in (rw.OutcomeStatus.HOPELESS, rw.OutcomeStatus.OVERFLOW)
            assert outcome.nbe > lu_ir.stop.target(100)


@pytest.mark.parametrize("mode", [2, 3])
@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16, rw.FP32], ids=str)
def test_gmres_ir_converges_up_to_its_limit_and_beats_lu_ir(fmt, mode):
    limit = np.log10(U ** (-1 / 3) * fmt.unit_roundoff ** (-2 / 3))
    assert limit > np.log10(1 / fmt.unit_roundoff) + 1
    for exponent in range(1, int(limit) + 1):
        problem = with_kappa(exponent, mode)
        outcome = gmres_ir.run(problem, (fmt, "fp64", "fp64", "fp64"))
        assert outcome.status is converged
        assert outcome.nbe <= 1e-15
        assert outcome.ferr <= 20 * 10.0**exponent * U
        assert outcome.outer_iterations <= 2
        # Preconditioned, mode 2 has one outlying eigenvalue: a handful of steps at any kappa.
        if mode == 2:
            assert outcome.inner_iterations <= {"bf16": 24, "fp16": 16, "fp32": 6}[fmt.name]


def test_more_factor_bits_need_fewer_gmres_steps():
    problem = with_kappa(4)
    counts = [
        gmres_ir.run(problem, (f, "fp64", "fp64", "fp64")).inner_iterations
        for f in ("bf16", "fp16", "fp32", "fp64")
    ]
    assert counts[0] > counts[1] > counts[2] > counts[3] == 0


@pytest.mark.parametrize("fmt", [rw.BF16, rw.formats.TF32, rw.FP32], ids=str)
def test_residual_precision_limits_the_backward_error(fmt):
    # nbe can fall to about u_r and no lower (Carson & Higham 2018, Theorem 4.1).
    rule = rw.algorithms.PaperRule(tau=0.5, max_steps=15)
    algorithm = rw.GmresIR(tolerance=1e-6, stop=rule)
    outcome = algorithm.run(with_kappa(2), ("fp32", "fp64", "fp64", fmt))
    assert fmt.unit_roundoff / 100 <= outcome.nbe <= 4 * fmt.unit_roundoff


@pytest.mark.parametrize("fmt", [rw.BF16, rw.formats.TF32, rw.FP32], ids=str)
def test_update_precision_limits_the_forward_error(fmt):
    algorithm = rw.GmresIR(stop=rw.algorithms.PaperRule(tau=0.5, max_steps=15))
    outcome = algorithm.run(with_kappa(2), ("fp32", fmt, "fp64", "fp64"))
    assert fmt.unit_roundoff / 20 <= outcome.ferr <= fmt.unit_roundoff


def test_extra_residual_precision_is_visible_below_fp64():
    # u = fp32 and u_r = fp64: the limiting accuracy is u, whatever kappa (here 1e5).
    problem = with_kappa(5)
    algorithm = rw.LuIR(stop=rw.algorithms.PaperRule(tau=0.5, max_steps=30))
    fixed = algorithm.run(problem, "fp32-fp32-fp32")
    extra = algorithm.run(problem, "fp32-fp32-fp64")
    assert extra.ferr <= 2 * rw.FP32.unit_roundoff
    assert fixed.ferr >= 100 * extra.ferr


# The paper's baseline: Table "dense", rows FP64 (avg. ferr, nbe, outer, GMRES).
PAPER_FP64 = {
    "low": (1.20e-14, 7.96e-17, 2.00, 2.00),
    "medium": (1.46e-11, 8.13e-17, 2.00, 2.00),
    "high": (1.92e-9, 8.09e-17, 2.00, 2.00),
}


def test_fp64_baseline_of_the_papers_dense_set():
    rows = {name: [] for name in PAPER_FP64}
    for problem in dense_set(0, 100, seed=0).test:
        kappa = problem.meta["kappa"]
        name = "low" if kappa <= 1e3 else "medium" if kappa <= 1e6 else "high"
        outcome = rw.GmresIR.paper(1e-6).run(problem, FP64_ACTION)
        facts = (outcome.ferr, outcome.nbe, outcome.outer_iterations, outcome.inner_iterations)
        rows[name].append(facts)
    for name, paper in PAPER_FP64.items():
        ferr, nbe, outer, inner = np.mean(rows[name], axis=0)
        assert paper[0] / 3 <= ferr <= 3 * paper[0]
        assert paper[1] / 3 <= nbe <= 3 * paper[1]
        assert (round(outer, 1), round(inner, 1)) == (2.0, 2.0)


# FP64 in every stage is plain double precision.


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_all_fp64_equals_numpy_and_scipy(algorithm, backend):
    dense = randsvd(80, 1e3, mode=3, rng=1)
    spd = LinearSystem.from_solution(dense.A @ dense.A.T, dense.x_true)
    action = "-".join(["fp64"] * len(algorithm.stages))
    for problem in (spd, poisson_2d(12), random_sparse_spd(120, beta=1.0, rng=2)):
        outcome = algorithm.run(problem, action, backend)
        direct = spsolve if problem.is_sparse else np.linalg.solve
        x = direct(problem.A, problem.b)
        kappa = np.linalg.cond(problem.A.toarray() if problem.is_sparse else problem.A)
        assert outcome.nbe <= 4e-16
        assert np.abs(outcome.x - x).max() <= 4 * kappa * U * np.abs(x).max()
        assert outcome.outer_iterations <= 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_equals_dense(backend):
    problem = convection_diffusion_2d(12, eps=0.1, beta=(3.0, -2.0))
    dense = LinearSystem(problem.A.toarray(), problem.b, problem.x_true)
    for action in ("bf16-fp64-fp64-fp64", "fp32-fp32-fp64-fp64"):
        if not supports(backend, rw.get_format(action[:4]), is_sparse=True):
            continue
        # Other pivots make other factors, so not the same bits.
        algorithm = rw.GmresIR(stop=rw.algorithms.DeploymentRule(tolerance=1e-7))
        a, b = algorithm.run(problem, action, backend), algorithm.run(dense, action, backend)
        assert a.status is b.status is converged
        assert abs(a.outer_iterations - b.outer_iterations) <= 1
        assert abs(a.inner_iterations - b.inner_iterations) <= 4


def test_cg_ir_solves_spd_systems_with_low_precision_cholesky():
    problem = poisson_2d(20)
    algorithm = rw.CgIR(stop=rw.algorithms.DeploymentRule(max_steps=20))
    fp64 = algorithm.run(problem, FP64_ACTION)
    low = algorithm.run(problem, "bf16-fp64-fp64-fp64")
    assert fp64.status is low.status is converged
    assert fp64.inner_iterations <= 2
    assert 4 <= low.inner_iterations <= 40
    with pytest.raises(ValueError, match="needs a symmetric matrix; use GmresIR"):
        algorithm.run(with_kappa(1), FP64_ACTION)


def test_gmres_is_a_krylov_method():
    # Without rounding, a preconditioned matrix I + (rank 3) needs at most 4 steps; restarts of
    # 2 need more, and one cycle of 2 does not get there.
    rng = np.random.default_rng(4)
    W = rng.standard_normal((40, 3))
    A = np.eye(40) + W @ W.T / 10
    factors = rw.backends.get_backend().matrix(np.eye(40), rw.FP64).lu()
    stage = Stage("gmres", rw.FP64, rw.backends.get_backend())
    matrix, r = stage.matrix(A), rng.standard_normal(40)
    full = gmres(stage, matrix, factors, r, 1e-10, restart=40, cycles=1)
    assert full.iterations == 4
    np.testing.assert_allclose(A @ full.Z, r, atol=1e-9)
    short = gmres(stage, matrix, factors, r, 1e-10, restart=2, cycles=1)
    assert short.iterations == 2
    assert short.residual == pytest.approx(
        np.linalg.norm(r - A @ short.Z) / np.linalg.norm(r), rel=1e-6
    )
    restarted = gmres(stage, matrix, factors, r, 1e-10, restart=2, cycles=200)
    assert 4 < restarted.iterations < 400
    np.testing.assert_allclose(A @ restarted.Z, r, atol=1e-7)


# The contract


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_outcomes_are_facts_in_full(algorithm, backend):
    problem = poisson_2d(6)
    action = "-".join(["fp32"] * (len(algorithm.stages) - 1) + ["fp64"])
    outcome = algorithm.run(problem, action, backend)
    assert (outcome.action, outcome.arithmetic) == (action, backend)
    assert not outcome.status.failed
    assert len(outcome.history) == outcome.outer_iterations
    assert sum(s["inner_iterations"] for s in outcome.history) == outcome.inner_iterations
    r = problem.b - problem.A @ outcome.x
    norm_A = abs(problem.A).sum(axis=1).max()
    nbe = abs(r).max() / (norm_A * abs(outcome.x).max() + abs(problem.b).max())
    if not isinstance(algorithm, rw.LsIR):  # whose backward error is of a least squares problem
        assert outcome.nbe == pytest.approx(nbe, rel=1e-12)
        assert outcome.cbe >= outcome.nbe
    assert outcome.ferr == abs(outcome.x - problem.x_true).max() / abs(problem.x_true).max()
    assert [key[0] for key in outcome.operations] == list(algorithm.stages)
    assert all(tally.bytes > 0 for tally in outcome.operations.values())
    for (stage, _), tally in outcome.operations.items():
        # SuperLU does not tell.
        hidden = backend == "native" and stage in ("factor", "preconditioner")
        assert tally.flops > 0 or (hidden and np.isnan(tally.flops))


def test_counted_operations_of_a_dense_run_by_hand():
    n = 50
    outcome = rw.LuIR(stop=rw.algorithms.PaperRule(max_steps=1)).run(
        randsvd(n, 10, rng=0), "fp32-fp64-fp64"
    )
    factor = outcome.operations["factor", "fp32"]
    # LU, then x_0 and one correction; each solve reads the factors and two vectors.
    assert factor.flops == pytest.approx(2 / 3 * n**3 + 2 * 2 * n**2)
    assert factor.bytes == 4 * (2 * n**2 + 2 * (n**2 + 2 * n))
    residual = outcome.operations["residual", "fp64"]
    assert residual.flops == 2 * n**2 + 2 * n
    assert residual.bytes == 8 * (n**2 + 2 * n + 3 * n)


def test_a_broken_off_factorization_has_its_price():
    # The zero pivot is met at the last of n columns: all the work was done, to n^3 2/3.
    n = 30
    A = np.random.default_rng(0).standard_normal((n, n))
    A[:, -1] = 0.0
    outcome = rw.LuIR().run(LinearSystem(A, np.ones(n)), "fp32-fp64-fp64")
    assert outcome.status is rw.OutcomeStatus.ZERO_PIVOT
    tally = outcome.operations["factor", "fp32"]
    assert tally.flops == pytest.approx(2 / 3 * (n**3 - 1))
    assert tally.bytes == 4 * 2 * n**2


def test_sharing_changes_nothing_and_factors_once(monkeypatch):
    problem = with_kappa(3, n=40)
    formats = ("bf16", "tf32", "fp32", "fp64")
    actions = list(itertools.combinations_with_replacement(formats, 4))
    algorithm = rw.GmresIR.paper()
    calls = []
    original = operation_dense.DenseMatrix.lu
    monkeypatch.setattr(
        operation_dense.DenseMatrix,
        "lu",
        lambda self: calls.append(self.fmt.name) or original(self),
    )
    together = algorithm.run_all(problem, actions)
    assert sorted(calls) == sorted(formats)
    assert len(actions) == 35
    for action, outcome in zip(actions[::5], together[::5], strict=True):
        assert algorithm.run(problem, action) == outcome


def test_a_failure_is_shared_too():
    problem = LinearSystem(np.full((3, 3), 1e30) + np.eye(3) * 1e30, np.ones(3))
    outcomes = rw.GmresIR.paper().run_all(problem, ["fp16-fp64-fp64-fp64", "fp16-fp32-fp64-fp64"])
    assert [o.status for o in outcomes] == [rw.OutcomeStatus.OVERFLOW] * 2
    assert all("fp16" in o.reason and o.x is None and o.nbe == np.inf for o in outcomes)


def test_equilibration_rescues_fp16():
    rng = np.random.default_rng(0)
    base = with_kappa(1, n=60)
    A = (10.0 ** rng.uniform(-12, 12, 60))[:, None] * base.A * 10.0 ** rng.uniform(-12, 12, 60)
    problem = LinearSystem(A, A @ np.ones(60), np.ones(60))
    plain = rw.GmresIR(stop=rw.algorithms.DeploymentRule())
    scaled = rw.GmresIR(stop=rw.algorithms.DeploymentRule(), equilibrate=True)
    action = "fp16-fp64-fp64-fp64"
    assert plain.run(problem, action).status is rw.OutcomeStatus.OVERFLOW
    outcome = scaled.run(problem, action)
    assert outcome.status is converged
    sparse_problem = LinearSystem(sparse.csr_array(A), problem.b, problem.x_true)
    assert scaled.run(sparse_problem, action).status is converged


def test_a_coarse_residual_is_not_believed():
    # In bf16 both b and x round to 0.333984375: the residual is 0. In float64 it is 6.5e-4.
    algorithm = rw.GmresIR(stop=rw.algorithms.DeploymentRule(tolerance=1e-6))
    problem = LinearSystem(np.eye(3), np.full(3, 1 / 3))
    outcome = algorithm.run(problem, "bf16-bf16-bf16-bf16")
    assert outcome.status is rw.OutcomeStatus.UNCONFIRMED
    assert outcome.nbe > 1e-4
    assert algorithm.run(problem, FP64_ACTION).status is converged


def test_an_inner_solver_that_gives_up_has_not_converged():
    # Cholesky in fp32, CG in bf16: rounding errors make a curvature or r' M r nonpositive.
    for seed in range(20):
        problem = random_sparse_spd(100, 0.02, beta=1e-6, rng=seed)
        outcome = rw.CgIR().run(problem, "fp32-fp64-bf16-fp64")
        assert not (outcome.status is converged and outcome.inner_iterations == 0)
    # A correction that underflows to zero is no convergence either.
    flushing = rw.FloatFormat("fp16ftz", 11, -14, 15, subnormals=False)
    problem = LinearSystem(np.diag([6e4, 5e4]), np.ones(2))
    for algorithm in (rw.GmresIR(), rw.LuIR()):
        outcome = algorithm.run(problem, [flushing] * len(algorithm.stages))
        assert outcome.status is not converged


def test_norms_beyond_float64_do_not_look_like_convergence():
    wide = rw.FloatFormat("wide8", 8, -1001, 1023)
    A = np.array([[1.2e308, 1e308], [0, 1e308]])
    problem = LinearSystem(A, [1e307, -3e307])
    rough = rw.LuIR(stop=rw.algorithms.DeploymentRule()).run(problem, [wide] * 3)
    assert rough.status is not converged
    assert rough.nbe > 1e-6
    good = rw.LuIR(stop=rw.algorithms.DeploymentRule()).run(problem, "fp64-fp64-fp64")
    assert good.status is converged
    assert 0 <= good.nbe <= 1e-15
    tiny = rw.GmresIR().run(LinearSystem(np.eye(2) * 1e-300, [1e100, 1.0]), FP64_ACTION)
    assert tiny.status is rw.OutcomeStatus.OVERFLOW
    assert tiny.x is None or np.isfinite(tiny.x).all()
    steep = LinearSystem(np.diag([1e-300, 1.0]), [1e100, 1.0])
    scaled = rw.GmresIR(equilibrate=True).run(steep, FP64_ACTION)
    assert scaled.status is rw.OutcomeStatus.OVERFLOW


def test_shared_work_belongs_to_one_problem():
    shared, first = Shared(), with_kappa(1, n=10)
    rw.LuIR().run(first, "fp32-fp64-fp64", shared=shared)
    for call in (
        lambda: rw.LuIR().run(with_kappa(2, n=10), "fp32-fp64-fp64", shared=shared),
        lambda: rw.LuIR(equilibrate=True).run(first, "fp32-fp64-fp64", shared=shared),
        lambda: rw.LuIR().run(first, "fp32-fp64-fp64", "storage", shared),
    ):
        with pytest.raises(ValueError, match="belongs to another problem"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rw.GmresIR().run(poisson_2d(3), "fp64-fp64"), "one for each stage: factor, up"),
        (lambda: rw.GmresIR().run(poisson_2d(3), "fp64-fp64-fp64-fp65"), "unknown format 'fp65'"),
        (lambda: rw.GmresIR(tolerance=0), "choose 0 < tolerance < 1"),
        (lambda: rw.GmresIR(cycles=0), "choose at least 1"),
        (lambda: rw.CgIR(tolerance=2), "choose 0 < tolerance < 1"),
        (lambda: rw.CgIR(max_inner=0), "choose at least 1"),
        (lambda: rw.algorithms.PaperRule(tau=0), "choose tau > 0"),
        (lambda: rw.algorithms.PaperRule(patience=0), "choose at least 1"),
        (lambda: rw.algorithms.DeploymentRule(tolerance=-1.0), "choose tolerance > 0, or None"),
        (lambda: rw.algorithms.DeploymentRule(max_steps=0), "choose at least 1"),
    ],
)
def test_wrong_settings_get_one_clear_line(call, message):
    with pytest.raises((ValueError, KeyError), match=message):
        call()


# Stopping rules, by hand


def progress_of(fmt, errors, z_norms, x_norms):
    """Of one column, or of several if the numbers are tuples."""
    x, z, e = ([np.atleast_1d(v).astype(float) for v in vs] for vs in (x_norms, z_norms, errors))
    return Progress(5, fmt, x, z, e)


def test_paper_rule_by_hand():
    rule = rw.algorithms.PaperRule(tau=1e-2, max_steps=4, patience=2)

    def verdict(*z_norms, x=1.0):
        progress = progress_of(rw.FP32, [1.0] * len(z_norms), z_norms, [x])
        return rule.after_update(progress)

    assert verdict(1.0) is None
    assert verdict(2.0**-24) is converged
    assert verdict(2.0**-23) is None
    assert verdict(1.0, 0.5) is None
    assert verdict(1.0, 0.5, 0.4) is rw.OutcomeStatus.STAGNATED
    assert verdict(1.0, 0.5, 0.004) is None
    assert verdict(1.0, 0.5, 0.004, 1e-5) is rw.OutcomeStatus.ITERATION_LIMIT


def test_deployment_rule_by_hand():
    rule = rw.algorithms.DeploymentRule(tolerance=1e-8, max_steps=5)
    hopeless = rw.OutcomeStatus.HOPELESS

    def verdict(*errors, z=None):
        z_norms = [1.0] * (len(errors) - 1) if z is None else z
        progress = progress_of(rw.FP64, errors, z_norms, [1.0])
        return rule.after_residual(progress)

    assert verdict(1e-8) is converged
    assert verdict(1e-2) is None
    assert verdict(1e-3, 1e-2) is None  # one correction tells too little
    assert verdict(1e-1, 1e-2, 1e-4) is None  # two more steps at that rate
    assert verdict(1e-1, 1e-2, 1e-3) is hopeless  # five more, three are left
    assert verdict(1e-1, 1e-2, 1e-2) is hopeless
    assert verdict(1e-7, 1e-6, 1e-6, z=[1.0, 1e-4]) is None  # the corrections still shrink
    assert verdict(1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 2e-8) is rw.OutcomeStatus.ITERATION_LIMIT
    assert verdict(float("nan")) is not converged
    assert rw.algorithms.DeploymentRule().target(100) == 10 * U
    with pytest.raises(ValueError, match="patience"):
        rw.algorithms.DeploymentRule(patience=1)


def test_the_custom_algorithm_example():
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "custom_algorithm.py"))
    source = Path(example["__file__"]).read_text().splitlines()
    assert sum(not line.startswith("#") for line in source) <= 110
    problem = example["EigenProblem"](np.diag([3.0, 1.0, 0.5]), 3.0)
    method = example["PowerMethod"](steps=60)
    assert method.run(problem, "fp64-fp64").ferr <= 1e-15
    # An eigenvector good to u gives a Rayleigh quotient good to u^2.
    assert method.run(problem, "bf16-fp64").ferr <= 4 * rw.BF16.unit_roundoff**2
    shared = Shared()
    assert method.run(problem, "bf16-fp64", "storage", shared).arithmetic == "storage"
