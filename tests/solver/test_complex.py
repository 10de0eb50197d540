"""Complex systems through the front door: answers, types, errors, factorizations, files."""

import copy
import json
import math
import pickle
import warnings

import mpmath
import numpy as np
import pytest
import scipy.io
from command_line import fail, succeed
from scipy import sparse

import roundwise as rw
from roundwise.backends import ArithmeticFailure, NativeBackend, Status
from roundwise.backends.native.complex_matrix import ComplexMatrix
from roundwise.backends.native.sparse import engine_methods
from roundwise.backends.real_form import (
    RealForm,
    complex_columns,
    compressed,
    expanded,
    expanded_block,
    real_columns,
)
from roundwise.formats import FP32, FP64
from roundwise.policies import FixedAction
from roundwise.solver.prepare import prepare
from roundwise.tuning import Context

U = 2.0**-53
BACKEND = NativeBackend()


def gaussian(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def with_condition(rng, n, kappa):
    left, right = (np.linalg.qr(gaussian(rng, n, n))[0] for _ in range(2))
    return (left * np.logspace(0, -math.log10(kappa), n)) @ right


def hermitian(rng, n, kappa):
    Q = np.linalg.qr(gaussian(rng, n, n))[0]
    H = (Q * np.logspace(0, -math.log10(kappa), n)) @ Q.conj().T
    return (H + H.conj().T) / 2


def true_solution(A, b):
    """By mpmath, with 60 digits."""
    with mpmath.workdps(60):
        return mpmath.lu_solve(mpmath.matrix(A.tolist()), mpmath.matrix(b.tolist()))


def relative_error(x, true):
    with mpmath.workdps(60):
        error = max(abs(mpmath.mpmathify(complex(a)) - t) for a, t in zip(x, true, strict=True))
        return float(error / max(abs(t) for t in true))


@pytest.fixture(name="rng")
def _rng():
    return np.random.default_rng(18)


# The real form


def test_the_real_form_acts_as_the_complex_matrix_does(rng):
    A, x = gaussian(rng, 5, 5), gaussian(rng, 5, 2)
    form, whole = RealForm(A), expanded_block(A)
    np.testing.assert_array_equal(np.asarray(form), whole)
    np.testing.assert_array_equal(
        whole[0:2, 0:2], [[A[0, 0].real, -A[0, 0].imag], [A[0, 0].imag, A[0, 0].real]]
    )
    np.testing.assert_allclose(complex_columns(whole @ real_columns(x)), A @ x, rtol=1e-14)
    np.testing.assert_array_equal(np.asarray(form.T), whole.T)
    np.testing.assert_array_equal(form[2:6], whole[2:6])
    for one, matrix in ((form, whole), (form.T, whole.T)):
        assert one.sizes() == pytest.approx((abs(matrix).sum(axis=1).max(), abs(matrix).max()))
    S = sparse.csr_array(np.where(rng.random((5, 5)) < 0.4, A, 0))
    np.testing.assert_array_equal(expanded(S).toarray(), expanded_block(S.toarray()))
    np.testing.assert_array_equal(compressed(expanded(S)).toarray(), S.toarray())
    np.testing.assert_array_equal(compressed(expanded(S).T.tocsr()).toarray(), S.toarray().conj().T)


@pytest.mark.parametrize("method", ["lu", "cholesky", "qr"])
@pytest.mark.parametrize("fmt", [FP32, FP64])
def test_factors_solve_the_real_form(rng, method, fmt):
    A = hermitian(rng, 9, 10.0) if method == "cholesky" else gaussian(rng, 9, 9)
    E, b = expanded_block(A), rng.standard_normal((18, 2))
    for form in (RealForm(A), RealForm(A.conj().T.copy()).T):
        factors = getattr(BACKEND.matrix(form, fmt), method)()
        for M in (factors, factors.to(FP64)):
            for transpose, matrix in ((False, E), (True, E.T)):
                x = M.solve(b, transpose)
                assert np.abs(matrix @ x - b).max() < 2000 * fmt.unit_roundoff * np.abs(x).max()
                np.testing.assert_array_equal(M.solve(b[:, 0], transpose).shape, (18,))


@pytest.mark.parametrize("fmt", [FP32, FP64])
def test_products(rng, fmt):
    A, x = gaussian(rng, 7, 7), rng.standard_normal(14)
    E = expanded_block(A)
    for matrix in (
        BACKEND.matrix(RealForm(A), fmt),
        BACKEND.matrix(expanded(sparse.csr_array(A)), fmt),
    ):
        for transpose, M in ((False, E), (True, E.T)):
            np.testing.assert_allclose(
                matrix.matvec(x, transpose), M @ x, atol=100 * fmt.unit_roundoff
            )


@pytest.mark.parametrize("method", list(engine_methods(is_complex=True)))
@pytest.mark.parametrize("fmt", [FP32, FP64])
def test_sparse_engines(rng, method, fmt):
    """All that are installed: an analysis serves other values; singular matrices have a status."""
    A = sparse.csr_array(
        np.where(rng.random((50, 50)) < 0.08, gaussian(rng, 50, 50), 0) + 3j * np.eye(50)
    )
    E, b = expanded(A), rng.standard_normal((100, 2))
    analysis = BACKEND.analyse(E, method)
    for matrix in (E, expanded(A * (2 - 1j)), E):
        factors = analysis.factorize(matrix, fmt)
        for M in (factors, factors.to(FP64)):
            for transpose, form in ((False, matrix), (True, matrix.T)):
                x = M.solve(b, transpose)
                assert np.abs(form @ x - b).max() < 1e4 * fmt.unit_roundoff * np.abs(x).max()
    with pytest.raises(ValueError, match="pattern"):
        analysis.factorize(expanded(sparse.csr_array(np.eye(50) + 0j)), fmt)
    singular = A.tolil()
    singular[7] = 0
    singular[7, 7] = 0
    with pytest.raises(ArithmeticFailure) as failure:
        BACKEND.analyse(expanded(singular.tocsr()), method).factorize(
            expanded(singular.tocsr()), fmt
        )
    assert failure.value.status is Status.ZERO_PIVOT


def test_cholesky_tells_indefinite_from_nearly_singular(rng):
    H = hermitian(rng, 40, 10.0)
    H -= 0.5 * np.eye(40)
    with pytest.raises(ArithmeticFailure) as failure:
        ComplexMatrix(RealForm(H), FP32).cholesky()
    assert failure.value.status is Status.INDEFINITE
    with pytest.raises(ArithmeticFailure) as failure:
        ComplexMatrix(RealForm(hermitian(rng, 40, 1e12)), FP32).cholesky()
    assert failure.value.status is Status.NOT_POSITIVE_DEFINITE


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_norm_of_the_gate_is_not_above_that_of_moduli(rng, kind):
    for scale in (np.zeros(6, dtype=int), rng.integers(-300, 300, 6)):
        A = gaussian(rng, 6, 6) * 2.0**scale
        matrix = prepare(A if kind == "dense" else sparse.csr_array(A))
        for one, given in ((matrix, A), (matrix.transposed(BACKEND), A.conj().T)):
            unit = 2.0 ** sum(int(e.max()) for e in (one.rows, one.columns) if e is not None)
            norm = np.abs(given).sum(axis=1).max() / unit
            assert norm / 1.42 < one.norm < norm * (1 + 1e-14)


# Answers


@pytest.mark.parametrize("n", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("policy", ["default", "fp32", "fp64"])
def test_answers_are_those_of_the_real_form(rng, n, policy):
    A, b = with_condition(rng, n, 100.0), gaussian(rng, n, 3)
    reference = complex_columns(np.linalg.solve(expanded_block(A), real_columns(b)))
    for form in (np.asarray, np.asfortranarray, sparse.csr_array, sparse.coo_array):
        for right in (b, b[:, 0]):
            x = rw.solve(form(A), right, policy=policy)
            assert x.dtype == np.complex128
            expected = reference if right.ndim == 2 else reference[:, 0]
            np.testing.assert_allclose(x, expected, rtol=0, atol=1e-11 * np.abs(reference).max())


@pytest.mark.parametrize(
    ("types", "expected"),
    [(pair, np.complex64) for pair in ("c8 c8", "c8 f4", "f4 c8")]
    + [(pair, np.complex128) for pair in ("c16 c16", "c8 c16", "c16 c8", "c8 f8", "f8 c8")],
)
def test_single_if_both_are_else_double(rng, types, expected):
    A, b = np.rint(8 * gaussian(rng, 6, 6)) + 40 * np.eye(6), np.rint(8 * gaussian(rng, 6))
    A, b = (
        (v if np.dtype(t).kind == "c" else v.real).astype(t)
        for v, t in zip((A, b), types.split(), strict=True)
    )
    for form in (np.asarray, sparse.csr_array):
        x = rw.solve(form(A), b)
        assert x.dtype == expected
        np.testing.assert_allclose(A @ x, b, atol=1e-4 if expected == np.complex64 else 1e-13)


def test_a_real_matrix_with_complex_columns_has_real_factors(rng):
    A, b = rng.standard_normal((30, 30)), gaussian(rng, 30, 2)
    for form in (np.asarray, sparse.csr_array):
        for right in (b, b[:, 0]):
            solution = rw.solve(form(A), right, full_output=True)
            assert solution.x.shape == right.shape
            np.testing.assert_allclose(A @ solution.x, right, atol=1e-11)
            assert solution.error_kind == "bound"
        F = rw.factor(form(A))
        assert "complex" not in repr(F)
        np.testing.assert_allclose(A.T @ F.solve(b, "T"), b, atol=1e-11)
    x = rw.solve(A, sparse.csr_array(b))
    np.testing.assert_allclose(A @ x, b, atol=1e-11)


def test_inputs_stay_as_they_are(rng):
    A, b = gaussian(rng, 20, 20), gaussian(rng, 20)
    kept = A.copy(), b.copy()
    for given in (A, np.asfortranarray(A), A * 1e200):
        A_given = given.copy(order="K")
        rw.solve(given, b, policy="fp32")
        rw.factor(given).solve(b, "H")
        np.testing.assert_array_equal(given, A_given)
    np.testing.assert_array_equal(b, kept[1])
    F = rw.factor(A)
    A[:] = 0
    np.testing.assert_allclose(kept[0] @ F.solve(b), b, atol=1e-12)


def test_views_lists_and_read_only_arrays(rng):
    big = gaussian(rng, 12, 12)
    A, b = big[::2, ::2], gaussian(rng, 6)
    A.flags.writeable = b.flags.writeable = False
    expected = np.linalg.solve(A, b)
    for given in (A, A.tolist(), A[::-1][::-1], A.astype(">c16")):
        np.testing.assert_allclose(rw.solve(given, b.tolist()), expected, rtol=1e-10)


def test_hermitian_positive_definite_matrices_find_cholesky(rng):
    n = 1250  # smaller ones take LU: looking for symmetry would take longer than Cholesky gains
    H, b = hermitian(rng, n, 1e3), gaussian(rng, n)
    solution = rw.solve(H, b, full_output=True)
    assert solution.action.startswith("cholesky:")
    H, b = H[:500, :500], b[:500]
    assert rw.solve(H, b, full_output=True, assume_a="pos").action.startswith("cholesky:")
    indefinite = H - 0.5 * np.diag(np.diag(H))
    indefinite[0, 0] = 1.0
    solution = rw.solve(indefinite, b, full_output=True, assume_a="pos")
    assert solution.action.startswith("lu:")
    symmetric = np.real(H) + 1j * np.abs(np.imag(H))  # symmetric, not Hermitian
    symmetric = (symmetric + symmetric.T) / 2
    assert rw.solve(symmetric, b, full_output=True).action.startswith("lu:")


# How far to trust them


@pytest.mark.parametrize("kappa", [1e2, 1e6, 1e10])
def test_errors_are_bounded(rng, kappa):
    A, b = with_condition(rng, 25, kappa), gaussian(rng, 25)
    true = true_solution(A, b)
    for form in (np.asarray, sparse.csr_array):
        solution = rw.solve(form(A), b, full_output=True)
        assert solution.error_kind == "bound"
        assert relative_error(solution.x, true) <= solution.forward_error_bound < 1e-2
        assert solution.condition > kappa / 30


@pytest.mark.parametrize("kappa", [1e3, 1e7, 1e12])
@pytest.mark.parametrize("policy", ["fp32", "fp64"])
def test_full_accuracy(rng, kappa, policy):
    A, b = with_condition(rng, 24, kappa), gaussian(rng, 24)
    true = true_solution(A, b)
    for form in (np.asarray, sparse.csr_array):
        solution = rw.solve(form(A), b, accuracy="forward", policy=policy, full_output=True)
        assert solution.accuracy == "forward"
        assert relative_error(solution.x, true) < 4 * U


def test_few_digits_are_warned_of(rng):
    A, b = with_condition(rng, 30, 1e15), gaussian(rng, 30)
    with pytest.warns(rw.IllConditionedWarning):
        rw.solve(A, b)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_singular_means_singular(form):
    i = 1j
    A = np.array([[1, i, 2], [i, -1, 2 * i], [0.5, 1, 3]])  # row 2 is i times row 1
    with pytest.raises(rw.SolveFailed, match="A is singular: its determinant is zero"):
        rw.solve(form(A), [1, 2, 3])
    with pytest.raises(rw.SolveFailed, match="A is singular"):
        rw.solve(form(np.zeros((2, 2), complex)), [1, 2])
    nearly = A.copy()
    nearly[1, 2] += 2.0**-50
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = rw.solve(form(nearly), [1, 2, 3])
    assert np.isfinite(x).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1j * np.nan, complex(0, -np.inf)])
def test_what_is_not_finite_is_refused(rng, bad):
    A, b = gaussian(rng, 4, 4), gaussian(rng, 4)
    for position in ("A", "b"):
        M, v = A.copy(), b.copy()
        (M if position == "A" else v).flat[2] = bad
        for form in (np.asarray, sparse.csr_array):
            with pytest.raises(ValueError, match=f"{position} has NaN or infinite"):
                rw.solve(form(M), v)
    right = b.copy()
    right[1] = bad
    with pytest.raises(ValueError, match="b has NaN"):
        rw.solve(A.real, right)


def test_other_refusals(rng):
    A, b = gaussian(rng, 4, 4), gaussian(rng, 4)
    with pytest.raises(ValueError, match="b has 3 rows, A has 4; pass b with 4 rows"):
        rw.solve(A, b[:3])
    with pytest.raises(ValueError, match="b has 3 rows, A has 4"):
        rw.solve(A.real, b[:3])
    with pytest.raises(ValueError, match="square"):
        rw.solve(A[:, :3], b)
    assert rw.solve(np.zeros((0, 0), complex), np.zeros(0)).dtype == np.complex128
    with pytest.raises(TypeError, match="complex128"):
        rw.solve(A.astype(np.clongdouble), b)
    with pytest.raises(TypeError, match="complex128"):
        rw.solve(A.real, b.astype(np.clongdouble))
    with pytest.raises(TypeError, match="masked"):
        rw.solve(np.ma.masked_array(A), b)
    with pytest.raises(TypeError, match=r"roundwise\.solve"):
        rw.LinearSystem(A, b)


def test_a_policy_that_asks_for_other_features_is_refused(rng):
    system = rw.LinearSystem(rng.standard_normal((6, 6)), np.ones(6))
    context, policy = Context(("norm_inf",), (None,)), FixedAction("lu:fp32-fp64-fp64-fp64")
    tuner = rw.Tuner(rw.VerifiedSolve(), policy=policy, context=context).fit([system])
    A, b = gaussian(rng, 6, 6), gaussian(rng, 6)
    with pytest.raises(TypeError, match="policy='default'"):
        rw.solve(A, b, policy=tuner, full_output=True)


# Factorizations and solvers


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_factor_once_solve_many(rng, form):
    A, B = gaussian(rng, 30, 30), gaussian(rng, 30, 4)
    F = rw.factor(form(A), columns=4)
    assert F.shape == (30, 30)
    assert "complex 30 x 30" in repr(F)
    for trans, M in (("N", A), ("T", A.T), ("H", A.conj().T), (0, A), (1, A.T), (2, A.conj().T)):
        for right in (B, B[:, 0], B.real):
            x = F.solve(right, trans)
            np.testing.assert_allclose(M @ x, right, atol=1e-11)
    other = gaussian(rng, 30, 30)
    np.testing.assert_allclose(other @ F.refactor(form(other)).solve(B), B, atol=1e-11)
    with pytest.raises(ValueError, match="factor"):
        F.refactor(form(np.eye(3, dtype=complex)))
    with pytest.raises(ValueError, match="trans"):
        F.solve(B, "X")


def test_a_real_factorization_does_not_go_on_with_a_complex_matrix(rng):
    F = rw.factor(rng.standard_normal((5, 5)))
    with pytest.raises(TypeError, match="complex"):
        F.refactor(gaussian(rng, 5, 5))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_solver_learns_from_complex_systems_too(rng, form):
    n = 500
    A = (
        np.where(rng.random((n, n)) < 0.03, gaussian(rng, n, n), 0)
        if form is not np.asarray
        else gaussian(rng, n, n)
    )
    A = A + 30 * np.eye(n)
    b = gaussian(rng, n)
    solver = rw.Solver()
    for _ in range(3):
        np.testing.assert_allclose(A @ solver.solve(form(A), b), b, atol=1e-10)
    np.testing.assert_allclose(A @ solver.factor(form(A)).solve(b), b, atol=1e-10)
    copied = copy.deepcopy(rw.solve(form(A), b, full_output=True))
    np.testing.assert_allclose(A @ copied.x, b, atol=1e-10)


def helmholtz(m, shift):
    """The Laplacian on an m x m grid minus a complex shift, times i in every other row."""
    line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    eye = sparse.eye_array(m)
    grid = sparse.kron(line, eye) + sparse.kron(eye, line) - shift * sparse.eye_array(m * m)
    return sparse.csr_array(sparse.diags_array(np.where(np.arange(m * m) % 2, 1, 1j)) @ grid)


def test_a_real_matrix_with_the_pattern_of_a_real_form_is_analysed_anew(rng):
    """A solver keeps what it knows of a complex pattern apart from the same pattern of reals."""
    A = sparse.csr_array(np.where(rng.random((60, 60)) < 0.1, gaussian(rng, 60, 60), 0))
    A = sparse.csr_array(A + 3j * sparse.eye_array(60))
    R = sparse.csr_array(expanded(A))
    R.data = rng.uniform(1, 2, R.nnz)
    solver = rw.Solver(policy="superlu/colamd:fp64-fp64-fp64-fp64")
    for matrix in (A, R, A):
        b = rng.standard_normal(matrix.shape[0])
        solution = solver.solve(matrix, b, full_output=True)
        assert (solution.status, len(solution.attempts)) == ("accepted", 1)
        assert np.abs(matrix @ solution.x - b).max() < 1e-10 * np.abs(solution.x).max()


@pytest.mark.parametrize("policy", ["default", "fp32"])
def test_larger_sparse_systems(rng, policy):
    """Enough entries for the probe, which sees the moduli."""
    A = helmholtz(60, 0.3 + 0.2j)
    x_true = gaussian(rng, 3600)
    b = A @ x_true
    solution = rw.solve(A, b, policy=policy, full_output=True)
    assert solution.action.startswith(("lu/left-looking", "superlu/", "pardiso/"))
    np.testing.assert_allclose(solution.x, x_true, rtol=1e-10)
    assert relative(solution.x, x_true) < 100 * solution.forward_error_bound
    F = rw.factor(A, policy=policy)
    other = helmholtz(60, 0.1 - 0.4j)
    for trans, M in (("N", A), ("H", A.conj().T)):
        np.testing.assert_allclose(F.solve(M @ x_true, trans), x_true, rtol=1e-10)
    np.testing.assert_allclose(F.refactor(other).solve(other @ x_true), x_true, rtol=1e-10)


def relative(x, true):
    return np.abs(x - true).max() / np.abs(true).max()


def test_gmres_rescues_poor_factors(rng):
    """Condition numbers beyond FP32's reach: the answer is right, whoever made it."""
    A, b = with_condition(rng, 150, 1e9), gaussian(rng, 150)
    for form in (np.asarray, sparse.csr_array):
        solution = rw.solve(form(A), b, policy="fp32", full_output=True)
        assert solution.backward_error <= math.sqrt(150) * U


# Files


@pytest.mark.parametrize("form", ["array", "coordinate"])
@pytest.mark.parametrize("symmetry", ["general", "hermitian", "symmetric", "skew-symmetric"])
def test_files(tmp_path, rng, form, symmetry):
    A = gaussian(rng, 6, 6) + 8 * np.eye(6)
    A = {
        "general": A,
        "hermitian": A + A.conj().T,
        "symmetric": A + A.T,
        "skew-symmetric": A - A.T,
    }[symmetry]
    b = gaussian(rng, 6, 2)
    scipy.io.mmwrite(
        tmp_path / "A.mtx",
        A if form == "array" else sparse.coo_array(A),
        symmetry=symmetry,
        precision=17,
    )
    scipy.io.mmwrite(tmp_path / "b.mtx", b, precision=17)
    succeed("solve", tmp_path / "A.mtx", tmp_path / "b.mtx", "-o", tmp_path / "x.mtx")
    np.testing.assert_allclose(A @ scipy.io.mmread(tmp_path / "x.mtx"), b, atol=1e-12)
    facts = json.loads(succeed("solve", tmp_path / "A.mtx", "--json"))
    assert facts["accepted"]
    assert facts["forward_error"] < 1e-12


def test_a_real_file_with_complex_columns(tmp_path, rng):
    A, b = rng.standard_normal((5, 5)) + 5 * np.eye(5), gaussian(rng, 5, 1)
    scipy.io.mmwrite(tmp_path / "A.mtx", A, precision=17)
    scipy.io.mmwrite(tmp_path / "b.mtx", b, precision=17)
    succeed("solve", tmp_path / "A.mtx", tmp_path / "b.mtx", "-o", tmp_path / "x.mtx", "--explain")
    np.testing.assert_allclose(A @ scipy.io.mmread(tmp_path / "x.mtx"), b, atol=1e-13)


def test_emulation_is_for_real_files(tmp_path, rng):
    scipy.io.mmwrite(tmp_path / "A.mtx", gaussian(rng, 3, 3))
    action = ["--action", "bf16-fp64-fp64-fp64"]
    assert "leave that out" in fail(2, "solve", tmp_path / "A.mtx", *action)
    assert "a LinearSystem is real" in fail(
        1, "train", tmp_path / "A.mtx", "-o", tmp_path / "p.json"
    )


@pytest.mark.parametrize("sparse_a", [False, True])
def test_determinants_inverses_and_copies_of_complex_matrices(sparse_a: bool) -> None:
    # P diag(d) with a permutation P: the determinant is known without any arithmetic but products.
    values = np.array([2j, -3.0, 1 + 1j, 0.5])
    A = np.diag(values)[[1, 0, 2, 3]]  # one exchange of rows
    F = rw.factor(sparse.csr_array(A) if sparse_a else A)
    determinant = -2j * -3.0 * (1 + 1j) * 0.5
    assert F.det() == pytest.approx(determinant, rel=1e-15)
    sign, logarithm = F.slogdet()
    assert sign * np.exp(logarithm) == pytest.approx(determinant, rel=1e-14)
    x = pickle.loads(pickle.dumps(F)).solve(A @ np.ones(4))
    assert np.allclose(x, 1, rtol=1e-15, atol=0)
    operator = F.as_linear_operator()
    assert operator.dtype == np.complex128
    assert np.allclose(operator.rmatvec(A.conj().T @ np.ones(4)), 1, rtol=1e-15, atol=0)
    if not sparse_a:
        assert np.allclose(F.inv() @ A, np.eye(4), rtol=0, atol=1e-15)
    singular = A.copy()
    singular[0] = singular[2]
    F = rw.factor(sparse.csr_array(singular) if sparse_a else singular)
    assert F.det() == 0


def test_stacks_of_complex_systems_are_broadcast_as_numpy_does_it() -> None:
    rng = np.random.default_rng(5)
    A = rng.standard_normal((3, 4, 4)) + 1j * rng.standard_normal((3, 4, 4))
    b = rng.standard_normal((3, 4, 2))
    x = rw.solve(A, b)
    assert x.dtype == np.complex128
    assert np.allclose(A @ x, b, rtol=0, atol=1e-13)
    single = rw.solve(A.astype(np.complex64), b.astype(np.float32))
    assert single.dtype == np.complex64
    assert rw.solve(A.real, b * 1j).dtype == np.complex128
    assert rw.solve(A, np.ones(4)).shape == (3, 4)
    assert rw.factor(A).solve(b).shape == (3, 4, 2)


@pytest.mark.parametrize("name", ["hermitian", "positive definite", "symmetric"])
def test_of_a_named_complex_matrix_one_triangle_is_read(name: str) -> None:
    rng = np.random.default_rng(6)
    B = rng.standard_normal((20, 20)) + 1j * rng.standard_normal((20, 20))
    whole = B + B.T if name == "symmetric" else B @ B.conj().T + np.eye(20)
    torn = np.triu(whole) + np.tril(np.full((20, 20), 7.0), -1)
    x = rw.solve(torn, np.ones(20), assume_a=name)
    assert np.allclose(whole @ x, 1, rtol=0, atol=1e-11)
