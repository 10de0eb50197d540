"""Direct or iterative: what is tried first, when it is given up, and that answers pass the gate."""

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise.problems import laplace_3d, poisson_2d
from roundwise.problems.pde import convection_diffusion_3d

REST = "fp64-fp64-fp64"


def passes(A, x, b):
    r, norm = abs(b - A @ x).max(axis=0), abs(A).sum(axis=1).max()
    return (
        r <= 1.01 * np.sqrt(len(b)) * 2.0**-53 * (norm * abs(x).max(axis=0) + abs(b).max(axis=0))
    ).all()


def method_of(attempt):
    return attempt.action.partition(":")[0]


@pytest.fixture(scope="module")
def cube():
    return laplace_3d(26)


def test_a_cube_is_solved_by_multigrid_at_once(cube):
    b = np.random.default_rng(0).standard_normal(cube.shape[0])
    solution = rw.solve(cube, b, full_output=True)
    assert [method_of(one) for one in solution.attempts] == ["multigrid/sa"]
    assert "wide" in solution.decision
    assert passes(cube, solution.x, b)
    assert (rw.solve(cube, b) == solution.x).all()


def test_bits_do_not_depend_on_threads(cube):
    b, before, found = np.random.default_rng(1).standard_normal(cube.shape[0]), None, set()
    before = rw.get_num_threads()
    try:
        for count in (1, 2, 5):
            rw.set_num_threads(count)
            found.add(rw.solve(cube, b, policy=f"multigrid/sa:fp32-{REST}").tobytes())
    finally:
        rw.set_num_threads(before)
    assert len(found) == 1


@pytest.mark.parametrize("fmt", ["bf16", "fp16", "fp32", "fp64"])
@pytest.mark.parametrize("method", ["multigrid/sa", "ic/0", "ic/2", "ilu/0", "ilu/1"])
def test_each_can_be_asked_for_in_each_format(method, fmt):
    A = poisson_2d(40).A
    if method.startswith("ilu"):
        A = convection_diffusion_3d(12, 10.0)
    B = np.random.default_rng(0).standard_normal((A.shape[0], 3))
    solution = rw.solve(A, B, policy=f"{method}:{fmt}-{REST}", full_output=True)
    assert solution.action == f"{method}:{fmt}-{REST}"
    assert len(solution.attempts) == 1
    assert passes(A, solution.x, B)


def test_transposed_systems_and_single_precision():
    A = convection_diffusion_3d(12, 10.0)
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    F = rw.factor(A, policy=f"ilu/0:fp32-{REST}")
    assert passes(A, F.solve(b), b)
    assert passes(sparse.csr_array(A.T), F.solve(b, trans="T"), b)
    single = A.astype(np.float32)
    x = rw.solve(single, b.astype(np.float32), policy=f"ilu/0:bf16-{REST}")
    assert x.dtype == np.float32
    assert np.linalg.norm(single @ x - b) <= 1e-5 * np.linalg.norm(b)


def test_what_is_indefinite_goes_the_direct_way(cube):
    A = sparse.csr_array(cube - 0.3 * sparse.eye_array(cube.shape[0]))
    b = np.random.default_rng(0).standard_normal(cube.shape[0])
    solution = rw.solve(A, b, full_output=True)
    methods = [method_of(one) for one in solution.attempts]
    assert methods[0] == "multigrid/sa"
    assert methods[-1] == "ldl/amd"
    assert "given up" in solution.decision
    assert passes(A, solution.x, b)


def test_many_solves_end_with_factors():
    A = laplace_3d(17)
    b, F = np.random.default_rng(0).standard_normal(A.shape[0]), None
    F = rw.factor(A)
    actions = []
    for _ in range(60):
        solution = F.solve(b, full_output=True)
        assert passes(A, solution.x, b)
        actions.append(solution.action.partition(":")[0])
    assert not actions[-1].startswith("multigrid")
    assert sorted(set(actions), key=actions.index) in ([actions[-1]], ["multigrid/sa", actions[-1]])


def test_full_accuracy_is_left_to_factors():
    A = laplace_3d(20)
    solution = rw.solve(A, np.ones(8000), accuracy="forward", full_output=True)
    assert not solution.action.startswith("multigrid")


def test_another_matrix_of_the_pattern():
    A = laplace_3d(22)
    F = rw.factor(A, policy=f"multigrid/sa:fp32-{REST}")
    b = np.ones(A.shape[0])
    F.solve(b)
    again = F.refactor(sparse.csr_array(2 * A + sparse.eye_array(A.shape[0])))
    x = (again or F).solve(b)
    assert passes(sparse.csr_array(2 * A + sparse.eye_array(A.shape[0])), x, b)


def drawn(rng):
    """A symmetric or unsymmetric matrix, perhaps singular, indefinite or badly scaled."""
    n = int(rng.integers(1, 120))
    A = sparse.random_array((n, n), density=min(1.0, rng.uniform(1, 6) / n), rng=rng)
    if rng.random() < 0.7:
        A = A + A.T
    signs = rng.choice([-1.0, 0.0, 1.0], n, p=[0.05, 0.02, 0.93]) if rng.random() < 0.3 else 1.0
    A = sparse.csr_array(
        A * rng.choice([1.0, -1.0]) + sparse.diags_array(signs * rng.uniform(0.1, 5, n))
    )
    if rng.random() < 0.4:
        d = sparse.diags_array(10.0 ** rng.uniform(-rng.integers(1, 60), 3, n))
        A = sparse.csr_array(d @ A @ d)
    if rng.random() < 0.1:
        A = sparse.csr_array(A - sparse.diags_array(A @ np.ones(n)))  # singular
    return A


@pytest.mark.parametrize("method", ["multigrid/sa", "ic/0", "ic/2", "ilu/0", "ilu/2"])
@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
def test_drawn_systems_end_in_an_answer_or_a_named_failure(method):
    rng, answers = np.random.default_rng(0), 0
    for _ in range(60):
        A, fmt = drawn(rng), rng.choice(["bf16", "fp16", "fp32", "fp64"])
        b = rng.standard_normal(A.shape[0])
        try:
            x = rw.solve(A, b, policy=f"{method}:{fmt}-{REST}")
        except rw.SolveFailed:
            continue
        answers += 1
        assert passes(A, x, b)
    assert answers >= 40
