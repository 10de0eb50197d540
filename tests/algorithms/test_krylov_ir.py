"""Krylov-IR: iteration counts, bits of preconditioners, and what each is defined by."""

import numpy as np
import pytest
from cases import BACKENDS
from scipy import sparse

import roundwise as rw
from roundwise.algorithms import KrylovIR, Stage
from roundwise.algorithms.krylov_ir import _fsai, _spai

POISSON = rw.problems.poisson_2d(12)
CONVECTION = rw.problems.pde.convection_diffusion_2d(12, 0.1, (1.0, 0.5))
FP64 = "fp64-fp64-fp64-fp64"


def stage():
    return Stage("preconditioner", rw.FP64, rw.backends.get_backend("operation"))


def test_fsai_gives_a_unit_diagonal_and_is_exact_for_the_full_pattern():
    A = POISSON.A
    (G, Gt), _ = _fsai(A, stage())
    assert (abs(Gt - G.T)).max() == 0
    assert np.allclose((G @ A @ G.T).diagonal(), 1.0)
    assert set(zip(*G.nonzero(), strict=True)) <= set(zip(*sparse.tril(A).nonzero(), strict=True))
    dense = sparse.csr_array(np.linalg.inv(A[:20][:, :20].toarray()))
    (G, _), _ = _fsai(dense, stage())
    assert np.allclose((G.T @ G @ dense).toarray(), np.eye(20), atol=1e-10)


def test_spai_has_least_residuals_columns_of_its_pattern():
    A = CONVECTION.A.toarray()
    (M,), _ = _spai(CONVECTION.A, stage())
    R = A @ M.toarray() - np.eye(len(A))
    for j in (0, 17, 143):  # orthogonal to what could change it
        J = np.flatnonzero(A[:, j])
        assert np.abs(A[:, J].T @ R[:, j]).max() < 1e-12


@pytest.mark.parametrize("krylov", ["cg", "gmres"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exact_preconditioner_takes_one_iteration_in_each_step(krylov, backend):
    system = rw.problems.randsvd(20, 10.0, rng=0)
    A = system.A @ system.A.T
    system = rw.LinearSystem((A + A.T) / 2, system.b)
    outcome = KrylovIR(krylov, "cholesky").run(system, FP64, backend)
    assert outcome.inner_iterations <= outcome.outer_iterations + 1
    assert outcome.nbe < 1e-15


@pytest.mark.parametrize(("krylov", "preconditioner"), [("cg", "fsai"), ("gmres", "spai")])
def test_better_preconditioners_take_fewer_iterations(krylov, preconditioner):
    system = rw.problems.high_contrast_2d(12, 1e3, rng=0)
    plain = KrylovIR(krylov, "jacobi").run(system, FP64)
    better = KrylovIR(krylov, preconditioner).run(system, FP64)
    assert max(plain.nbe, better.nbe) < 1e-15
    assert better.inner_iterations < 0.8 * plain.inner_iterations


@pytest.mark.parametrize("system", [POISSON, CONVECTION], ids=["poisson", "convection"])
def test_eight_bits_of_a_preconditioner_cost_few_iterations(system):
    algorithm = KrylovIR("gmres", "spai")
    full = algorithm.run(system, FP64)
    low = algorithm.run(system, "bf16-fp64-fp64-fp64")
    assert low.nbe < 1e-15
    assert low.inner_iterations <= 1.2 * full.inner_iterations
    bytes_of = [
        one.operations["preconditioner", name].bytes
        for one, name in ((low, "bf16"), (full, "fp64"))
    ]
    assert bytes_of[0] < 0.6 * bytes_of[1]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="need a symmetric matrix"):
        KrylovIR("cg").run(CONVECTION, FP64)
    indefinite = rw.LinearSystem(sparse.csr_array(np.diag([1.0, -1.0])), np.ones(2))
    outcome = KrylovIR("cg", "fsai").run(indefinite, FP64)
    assert outcome.status.name == "NOT_POSITIVE_DEFINITE"
    empty = rw.LinearSystem(np.array([[0.0, 1.0], [1.0, 1.0]]), np.ones(2))
    assert KrylovIR().run(empty, FP64).status.name == "ZERO_PIVOT"
    for wrong in ({"krylov": "qmr"}, {"preconditioner": "amg"}, {"tolerance": 1.0}, {"most": 0}):
        with pytest.raises(ValueError, match="choose"):
            KrylovIR(**wrong)


def test_a_tuner_learns_formats_for_it():
    pytest.importorskip("sklearn")
    systems = [rw.problems.poisson_2d(m) for m in (4, 5, 6)]
    tuner = rw.Tuner(KrylovIR("cg", "fsai"), ["bf16", "fp32", "fp64"]).fit(systems)
    action = tuner.predict(rw.problems.poisson_2d(7))
    assert KrylovIR("cg", "fsai").run(rw.problems.poisson_2d(7), action).nbe < 1e-6
