"""The PDE gallery against Kronecker formulas, known spectra and a slow reference."""

import numpy as np
import pytest
import scipy.sparse as sp

from roundwise.problems import anisotropic_2d, convection_diffusion_2d, high_contrast_2d, poisson_2d
from roundwise.problems.pde import diffusion_matrix

FLOWS = [(0.0, 0.0), (3.0, 0.0), (-3.0, 0.0), (0.0, 2.0), (0.0, -2.0), (10.0, -7.0)]


def second_difference(m):
    return 2 * np.eye(m) - np.eye(m, k=1) - np.eye(m, k=-1)


def families(m):
    return [
        poisson_2d(m),
        anisotropic_2d(m, 1e-5),
        high_contrast_2d(m, 1e6, rng=0),
        convection_diffusion_2d(m, 0.01, (4.0, -9.0)),
    ]


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_poisson_is_the_kronecker_sum(m):
    T, eye = second_difference(m), np.eye(m)
    A = poisson_2d(m).A.toarray()
    np.testing.assert_array_equal(A, np.kron(eye, T) + np.kron(T, eye))


@pytest.mark.parametrize("m", [2, 7, 12])
def test_poisson_spectrum(m):
    wave = 4 * np.sin(np.arange(1, m + 1) * np.pi / (2 * (m + 1))) ** 2
    expected = np.sort(np.add.outer(wave, wave).ravel())
    A = poisson_2d(m).A.toarray()
    np.testing.assert_allclose(np.linalg.eigvalsh(A), expected, rtol=1e-12)
    assert np.linalg.cond(A) == pytest.approx(1 / np.tan(np.pi / (2 * (m + 1))) ** 2, rel=1e-10)


@pytest.mark.parametrize("eps", [1.0, 1e-3, 1e-8])
def test_anisotropic_is_weak_in_x(eps):
    m = 6
    T, eye = second_difference(m), np.eye(m)
    expected = (eps * np.kron(eye, T) + np.kron(T, eye)) * (m + 1) ** 2  # x runs fastest
    A = anisotropic_2d(m, eps).A.toarray()
    np.testing.assert_allclose(A, expected, rtol=1e-15)
    kappa = 1 / np.tan(np.pi / (2 * (m + 1))) ** 2
    assert np.linalg.cond(A) == pytest.approx(kappa, rel=1e-9)


def test_families_meet_in_poisson():
    m = 9
    A = poisson_2d(m).A.toarray()
    np.testing.assert_array_equal(anisotropic_2d(m, 1.0).A.toarray(), A * (m + 1) ** 2)
    flowless = convection_diffusion_2d(m, 1.0, (0.0, 0.0)).A.toarray()
    np.testing.assert_array_equal(flowless, A * (m + 1) ** 2)
    np.testing.assert_array_equal(high_contrast_2d(m, 1.0, rng=0).A.toarray(), A)


@pytest.mark.parametrize("m", [1, 2, 3, 6])
def test_diffusion_matrix_against_a_loop(m):
    c = 10.0 ** np.random.default_rng(m).uniform(-3, 9, (m, m))
    expected = np.zeros((m * m, m * m))
    for j in range(m):
        for i in range(m):
            for dj, di in ((0, -1), (0, 1), (-1, 0), (1, 0)):
                inside = 0 <= j + dj < m and 0 <= i + di < m
                if inside:
                    a, b = c[j, i], c[j + dj, i + di]
                    link = 2 * a * b / (a + b)
                    expected[j * m + i, (j + dj) * m + i + di] = -link
                else:
                    link = c[j, i]
                expected[j * m + i, j * m + i] += link
    np.testing.assert_allclose(diffusion_matrix(c).toarray(), expected, rtol=4e-15)


def test_high_contrast_coefficients_are_log_uniform():
    m, contrast = 40, 1e6
    A = high_contrast_2d(m, contrast, rng=0).A
    assert (A != A.T).nnz == 0
    # The row sums are the links to the boundary: each edge point's own coefficient.
    sums = np.asarray(A.sum(axis=1)).reshape(m, m)
    scale = A.diagonal().reshape(m, m)
    np.testing.assert_allclose(sums[1:-1, 1:-1] / scale[1:-1, 1:-1], 0, atol=1e-15)
    edge = np.concatenate([sums[0, 1:-1], sums[-1, 1:-1], sums[1:-1, 0], sums[1:-1, -1]])
    exponent = np.sort(np.log10(edge))
    assert exponent[0] > -1e-6
    assert exponent[-1] < 6 + 1e-6
    count = exponent.size
    assert np.max(np.abs(exponent / 6 - (np.arange(count) + 0.5) / count)) < 1.95 / np.sqrt(count)


@pytest.mark.parametrize("beta", FLOWS)
def test_convection_takes_the_upwind_neighbour(beta):
    m, eps = 5, 0.25
    h = 1 / (m + 1)
    A = convection_diffusion_2d(m, eps, beta).A.toarray()
    middle = 2 * m + 2
    west, east, south, north = (A[middle, middle + step] for step in (-1, 1, -m, m))
    # The transported quantity comes from where the flow comes from.
    assert west == pytest.approx(-eps / h**2 - max(beta[0], 0) / h)
    assert east == pytest.approx(-eps / h**2 - max(-beta[0], 0) / h)
    assert south == pytest.approx(-eps / h**2 - max(beta[1], 0) / h)
    assert north == pytest.approx(-eps / h**2 - max(-beta[1], 0) / h)
    assert A[middle, middle] == pytest.approx(4 * eps / h**2 + (abs(beta[0]) + abs(beta[1])) / h)


@pytest.mark.parametrize("beta", FLOWS)
def test_convection_diffusion_is_exact_for_linear_functions(beta):
    # u = 1 + 2x - 3y: Laplace u = 0 and one-sided differences are exact, so that
    # (A u) = beta . grad u at points without boundary neighbours.
    m = 6
    t = np.arange(1, m + 1) / (m + 1)
    u = (1 + 2 * t[None, :] - 3 * t[:, None]).ravel()
    Au = (convection_diffusion_2d(m, 0.1, beta).A @ u).reshape(m, m)[1:-1, 1:-1]
    np.testing.assert_allclose(Au, 2 * beta[0] - 3 * beta[1], atol=1e-10)


@pytest.mark.parametrize("m", [1, 2, 13])
def test_structure_common_to_all_families(m):
    for problem in families(m):
        A = problem.A
        assert problem.n == m * m
        assert A.nnz == 5 * m * m - 4 * m
        off_diagonal = A - sp.diags_array(A.diagonal())
        assert np.all(A.diagonal() > 0)
        assert np.all(off_diagonal.data <= 0)
        # weakly diagonally dominant, up to rounding: an M-matrix
        row_sums = np.asarray(A.sum(axis=1))
        assert np.all(row_sums >= -1e-14 * A.diagonal())
        assert np.max(row_sums / A.diagonal()) > 0.1
        assert np.all(np.linalg.inv(A.toarray()) > 0)
        symmetric = (A != A.T).nnz == 0
        assert symmetric == (problem.meta["family"] != "convection_diffusion_2d" or m == 1)


def test_manufactured_solution_and_right_hand_side():
    m = 7
    for problem in families(m):
        for j in range(m):
            for i in range(m):
                x, y = (i + 1) / (m + 1), (j + 1) / (m + 1)
                value = np.sin(np.pi * x) * np.sin(np.pi * y)
                value += np.sin(2 * np.pi * x) * np.sin(3 * np.pi * y) / 4
                assert problem.x_true[j * m + i] == pytest.approx(value, abs=1e-14)
        np.testing.assert_array_equal(problem.A @ problem.x_true, problem.b)


def test_poisson_right_hand_side_approximates_the_equation():
    # -Laplace of the manufactured solution, s1 + s2 / 4, is 2 pi^2 s1 + 13 pi^2 s2 / 4; the
    # truncation error is at most h^2 / 12 |u_xxxx + u_yyyy|, fourth derivatives 1, 16, 81 pi^4
    m = 127
    t = np.pi * np.arange(1, m + 1) / (m + 1)
    f = 2 * np.pi**2 * np.outer(np.sin(t), np.sin(t))
    f += 13 * np.pi**2 / 4 * np.outer(np.sin(3 * t), np.sin(2 * t))
    b = poisson_2d(m).b.reshape(m, m) * (m + 1) ** 2
    assert np.max(np.abs(b - f)) <= (2 + (16 + 81) / 4) * np.pi**4 / 12 / (m + 1) ** 2
    # the same equation seen by the other operators
    np.testing.assert_allclose(anisotropic_2d(m, 1.0).b.reshape(m, m), b, rtol=1e-9, atol=1e-9)


def test_convection_right_hand_side_approximates_the_equation():
    m, eps, beta = 400, 0.5, (3.0, -2.0)
    t = np.pi * np.arange(1, m + 1) / (m + 1)
    sin, cos = np.sin, np.cos
    f = eps * np.pi**2 * (2 * np.outer(sin(t), sin(t)) + 13 / 4 * np.outer(sin(3 * t), sin(2 * t)))
    f += beta[0] * np.pi * (np.outer(sin(t), cos(t)) + np.outer(sin(3 * t), cos(2 * t)) / 2)
    f += beta[1] * np.pi * (np.outer(cos(t), sin(t)) + 3 / 4 * np.outer(cos(3 * t), sin(2 * t)))
    b = convection_diffusion_2d(m, eps, beta).b.reshape(m, m)
    # upwind error: |beta| h / 2 * |u''| <= (3 * 2 + 2 * 3.25) pi^2 / 2 * h, plus O(h^2)
    assert np.max(np.abs(b - f)) < 70 / (m + 1)


def test_high_contrast_repeats_with_the_seed():
    first = high_contrast_2d(5, 1e9, rng=4).fingerprint
    assert high_contrast_2d(5, 1e9, rng=np.random.default_rng(4)).fingerprint == first
    assert high_contrast_2d(5, 1e9, rng=5).fingerprint != first


def test_a_million_unknowns():
    m = 1000
    for problem in families(m):
        assert problem.n == 10**6
        assert problem.A.nnz == 5 * m * m - 4 * m
        assert np.all(np.isfinite(problem.b))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: poisson_2d(0), ValueError, "m >= 1"),
        (lambda: poisson_2d(3.0), TypeError, "pass an integer"),
        (lambda: anisotropic_2d(3, 0.0), ValueError, "eps > 0"),
        (lambda: high_contrast_2d(3, 0.5, rng=0), ValueError, "contrast >= 1"),
        (lambda: high_contrast_2d(3, np.nan, rng=0), ValueError, "finite"),
        (lambda: convection_diffusion_2d(3, -1.0, (0, 0)), ValueError, "eps > 0"),
        (lambda: convection_diffusion_2d(3, 1.0, (0, 0, 0)), ValueError, "beta_x, beta_y"),
        (lambda: convection_diffusion_2d(3, 1.0, (0, np.inf)), ValueError, "finite"),
    ],
)
def test_bad_arguments_name_the_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()
