"""What a factorization gives beside solves: determinants, the inverse, a SciPy operator."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, gmres

import roundwise as rw

FORMS = [np.asarray, np.asfortranarray, sparse.csr_array]


def exact_determinant(A):
    """By elimination in rational numbers."""
    rows = [[Fraction(float(value)) for value in row] for row in A]
    determinant = Fraction(1)
    for j in range(len(rows)):
        pivot = next((i for i in range(j, len(rows)) if rows[i][j]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != j:
            rows[j], rows[pivot], determinant = rows[pivot], rows[j], -determinant
        determinant *= rows[j][j]
        for i in range(j + 1, len(rows)):
            factor = rows[i][j] / rows[j][j]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[j], strict=True)]
    return determinant


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("scale", [1.0, 2.0**60, 2.0**-60])
def test_determinants(form, n, scale):
    for seed in range(5):
        A = np.random.default_rng(seed).standard_normal((n, n)) * scale
        F, expected = rw.factor(form(A)), float(exact_determinant(A))
        assert F.det() == pytest.approx(expected, rel=1e-11)
        sign, logarithm = F.slogdet()
        assert sign == np.sign(expected)
        assert logarithm == pytest.approx(np.log(abs(expected)), abs=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_rows_and_columns_of_very_different_sizes(form):
    A = np.random.default_rng(1).standard_normal((4, 4))
    A = A * np.array([1e-120, 1.0, 1e120, 1e40])[:, None]
    assert rw.factor(form(A)).det() == pytest.approx(float(exact_determinant(A)), rel=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_a_singular_matrix_has_the_determinant_zero(form):
    A = np.arange(1.0, 10.0).reshape(3, 3)  # LU in FP64 finds no zero pivot
    F = rw.factor(form(A))
    assert (F.det(), F.slogdet()) == (0.0, (0.0, -np.inf))
    assert rw.factor(form(np.zeros((3, 3)))).det() == 0.0


def test_determinants_out_of_range():
    assert rw.factor(1e200 * np.eye(4)).det() == np.inf
    assert rw.factor(-1e200 * np.eye(3)).det() == -np.inf
    assert rw.factor(1e-200 * np.eye(4)).det() == 0.0
    assert rw.factor(1e200 * np.eye(4)).slogdet()[1] == pytest.approx(800 * np.log(10))


def test_inverse():
    A = np.random.default_rng(2).standard_normal((9, 9))
    np.testing.assert_allclose(rw.factor(A).inv(), np.linalg.inv(A), rtol=1e-9)
    assert rw.factor(A.astype(np.float32)).inv().dtype == np.float32
    with pytest.raises(ValueError, match=r"solve\(numpy.eye"):
        rw.factor(sparse.csr_array(A)).inv()
    with pytest.raises(rw.SolveFailed, match="singular"):
        rw.factor(np.ones((2, 2))).inv()


@pytest.mark.parametrize("form", FORMS)
def test_a_linear_operator(form):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((30, 30)) + 30 * np.eye(30)
    M = rw.factor(form(A)).as_linear_operator()
    assert isinstance(M, LinearOperator)
    b, B = rng.standard_normal(30), rng.standard_normal((30, 2))
    np.testing.assert_allclose(M @ b, np.linalg.solve(A, b), rtol=1e-10)
    np.testing.assert_allclose(M @ B, np.linalg.solve(A, B), rtol=1e-10)
    np.testing.assert_allclose(M.rmatvec(b), np.linalg.solve(A.T, b), rtol=1e-10)
    np.testing.assert_allclose(M.H @ B, np.linalg.solve(A.T, B), rtol=1e-10)
    nearby = A + 1e-3 * rng.standard_normal((30, 30))
    steps = []
    x, info = gmres(nearby, b, M=M, rtol=1e-12, callback=steps.append, callback_type="pr_norm")
    assert info == 0
    assert len(steps) <= 5  # 1e-3 beside 30: each step gains four digits
    np.testing.assert_allclose(nearby @ x, b, rtol=1e-9)


@pytest.mark.parametrize("trans", ["N", "T", "H", 0, 1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_transposes(form, trans):
    A = np.random.default_rng(4).standard_normal((12, 12))
    meant = A if trans in ("N", 0) else A.T
    x = rw.factor(form(A)).solve(np.ones(12), trans)
    np.testing.assert_allclose(x, np.linalg.solve(meant, np.ones(12)), rtol=1e-9)
