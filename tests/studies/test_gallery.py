"""The gallery: its families, its order, and the matrices in three dimensions."""

from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp

from roundwise.problems import LinearSystem, laplace_3d, poisson_2d, write_matrix_market
from roundwise.problems.pde import convection_diffusion_3d
from roundwise_studies.default_policy.gallery import FAMILIES, policy_systems
from roundwise_studies.default_policy.matrices import positive_definite


def test_every_family_makes_finite_square_matrices_of_its_kind():
    kinds = {family.kind for family in FAMILIES.values()}
    assert kinds == {"dense", "structured", "PDE", "3-D PDE", "sparse"}
    for family in FAMILIES.values():
        A = family.make(6, np.random.default_rng(0))
        n = {"PDE": 36, "3-D PDE": 216}.get(family.kind, 6)
        assert A.shape == (n, n), family.name
        assert sp.issparse(A) == (family.kind not in ("dense", "structured")), family.name
        assert np.all(np.isfinite(A.data if sp.issparse(A) else A)), family.name


def test_all_families_are_taken_as_often_as_they_say():
    systems = policy_systems(0)
    for family in FAMILIES.values():
        taken = sum(system.family == family.name for system in systems)
        assert taken == sum(count for *_, count in family.ranges), family.name
    # A system's position is its seed: another order would make other matrices.
    assert [system.seed for system in systems] == [(0, i) for i in range(1144)]
    names = [systems[i].name for i in (0, 7, 140, 239, 956, 1072, 1073, 1143)]
    assert names == [
        "0-randsvd-mode1-1e0",
        "7-randsvd-mode1-1e1",
        "140-gaussian",
        "239-randsvd-mode1-1e0",
        "956-poisson",
        "1072-random-sparse",
        "1073-random-banded",
        "1143-random-spd",
    ]


def test_a_system_is_always_the_same_problem():
    for system, again in islice(
        zip(policy_systems(3, scale=0.02), policy_systems(3, scale=0.02), strict=True), 0, None, 40
    ):
        problem = system.problem()
        assert problem.fingerprint == again.problem().fingerprint
        assert problem.name == system.name
        assert problem.meta["family"] == system.family
        np.testing.assert_array_equal(problem.b, system.right_hand_side(problem.n))
        dense = problem.A.toarray() if problem.is_sparse else problem.A
        A = system.matrix()
        np.testing.assert_array_equal(dense, A.toarray() if sp.issparse(A) else A)


def test_files_of_a_folder_follow_the_families(tmp_path):
    write_matrix_market(tmp_path / "small.mtx", poisson_2d(3).A)
    (tmp_path / "README.md").write_text("no matrix")
    *_, last = policy_systems(0, tmp_path)
    assert last.name == "1144-small"
    assert last.family == "file"
    assert isinstance(last.problem(), LinearSystem)
    np.testing.assert_array_equal(last.matrix().toarray(), poisson_2d(3).A.toarray())


@pytest.mark.parametrize("m", [1, 2, 5])
def test_laplace_3d_has_the_eigenvalues_of_its_stencil(m):
    one = 4 * np.sin(np.arange(1, m + 1) * np.pi / (2 * (m + 1))) ** 2
    expected = (one[:, None, None] + one[:, None] + one).ravel()
    found = np.linalg.eigvalsh(laplace_3d(m).toarray())
    np.testing.assert_allclose(found, np.sort(expected), atol=1e-13)


def test_convection_diffusion_3d_adds_upwind_differences_along_x():
    m, speed = 4, 50.0
    flow = (convection_diffusion_3d(m, speed) - laplace_3d(m)).toarray()
    h_speed = speed / (m + 1)
    for k in range(m**3):
        expected = np.zeros(m**3)
        expected[k] = h_speed
        if k % m:  # x runs fastest; the first point of a line has the boundary to its west
            expected[k - 1] = -h_speed
        np.testing.assert_allclose(flow[k], expected, atol=1e-14)


def test_positive_definite_has_the_prescribed_eigenvalues():
    A = positive_definite(1e4, 3, 20, np.random.default_rng(0))
    np.testing.assert_array_equal(A, A.T)
    expected = np.sort(1e4 ** -np.linspace(0, 1, 20))
    np.testing.assert_allclose(np.linalg.eigvalsh(A), expected, atol=1e-14)
