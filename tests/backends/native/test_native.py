"""The native backend: rounding-error bounds, formats, named failures and refusals."""

import mpmath
import numpy as np
import pytest
from cases import supports
from exact import backward_error
from hard_systems import spd
from scipy import sparse

import roundwise as rw
from roundwise import _kernels
from roundwise.backends import NativeBackend, Status, UnsupportedFormat, native_formats
from roundwise.backends.emulated import ordering as superlu_calls
from roundwise.backends.native import dense as native_dense
from roundwise.problems import LinearSystem, poisson_2d, randsvd

SIZES = [1, 2, 3, 50, 130]
DENSE = [rw.FP64, rw.FP32, rw.BF16, rw.FP16]
WIDE = [rw.FP64, rw.FP32]
U32 = rw.FP32.unit_roundoff
# The same LU on any processor; with instructions, where this one has them, too.
NATIVE = [NativeBackend(level) for level in _kernels.native_bf16_levels()]
native = NativeBackend(bf16_instructions="portable")

each_size = pytest.mark.parametrize("n", SIZES)
each_format = pytest.mark.parametrize("fmt", DENSE, ids=str)
each_wide_format = pytest.mark.parametrize("fmt", WIDE, ids=str)
each_backend = pytest.mark.parametrize("backend", NATIVE, ids=lambda b: b.bf16_instructions)

LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": lambda A: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda A: A[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": lambda A: np.frombuffer(A.tobytes(), A.dtype).reshape(A.shape),
    "other byte order": lambda A: A.astype(A.dtype.newbyteorder()),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)

SPARSE = ["csr", "csc", "coo", "lil", "dok", "bsr"]


def rounded(A, fmt):
    return rw.round_to(np.asarray(A, dtype=np.float64), fmt)


def general(n, fmt=rw.FP64, seed=0):
    return rounded(np.random.default_rng([seed, n]).uniform(-1, 1, (n, n)), fmt)


def definite(n, fmt=rw.FP64):
    return rounded(spd(n, 2), fmt)


def sparse_general(n, fmt=rw.FP64, seed=0):
    rng = np.random.default_rng([seed, n])
    A = sparse.random_array((n, n), density=min(1.0, 4 / n), rng=rng, format="csr")
    return sparse.csr_array(rounded(A.toarray() + np.diag(rng.uniform(1, 2, n)), fmt))


def dense(A):
    return A.toarray() if sparse.issparse(A) else np.asarray(A)


def triangles(F):
    """L and U with the permutations undone: A is near their product."""
    L, U = dense(F.L), dense(F.U)
    if F.perm is not None:
        L = L[np.argsort(F.perm)]
    if F.order is not None:
        U = U[:, np.argsort(F.order)]
    return L, U


def exact(A, x):
    return np.array([float(mpmath.fdot(map(float, row), map(float, x))) for row in A])


def status_of(call):
    with pytest.raises(rw.backends.ArithmeticFailure) as error:
        call()
    return error.value.status


def attempt(call):
    """The result and no status, or no result and the status of the failure."""
    try:
        return call(), None
    except rw.backends.ArithmeticFailure as failure:
        return None, failure.status


# --- against exact arithmetic


@each_wide_format
@each_size
@each_layout
def test_products(fmt, n, layout):
    u = fmt.unit_roundoff
    A, x = general(n, fmt)[:, : n // 2 + 1], general(n, fmt)[0]
    M = native.matrix(LAYOUTS[layout](A), fmt)
    for transpose, T in ((False, A), (True, A.T)):
        y = M.matvec(x[: T.shape[1]], transpose)
        bound = (T.shape[1] + 1) * u * (abs(T) @ abs(x[: T.shape[1]]))
        assert (abs(y - exact(T, x[: T.shape[1]])) <= bound).all()


@each_format
@each_size
@each_layout
def test_lu(fmt, n, layout):
    A = general(n, fmt)
    F = native.matrix(LAYOUTS[layout](A), fmt).lu()
    L, U = triangles(F)
    assert np.array_equal(np.diagonal(dense(F.L)), np.ones(n))
    assert not np.triu(dense(F.L), 1).any()
    assert not np.tril(dense(F.U), -1).any()
    # n u of the format that is computed in; rounding of stored factors, and of the operands of
    # BF16 products, twice each; float64 has computed the product and perhaps scaled L and U.
    computed, float64 = native_dense.COMPUTED_IN[fmt].unit_roundoff, rw.FP64.unit_roundoff
    stored = 4.1 * fmt.unit_roundoff if fmt not in WIDE else 0.0
    bound = (1.1 * n * computed + stored + (n + 4) * float64) * (abs(L) @ abs(U))
    # Entries of fp16 factors may underflow.
    underflow = fmt.min_subnormal * n * (abs(L).max() + abs(U).max())
    assert (abs(A - L @ U) <= bound + underflow).all()


def tensor_lu(A, block=64):
    """Blocked LU with products of BF16 numbers summed in FP32, all else in FP32; L, U in BF16."""
    F, perm = A.astype(np.float32), np.arange(len(A))
    for k in range(0, len(A), block):
        end = min(k + block, len(A))
        for j in range(k, end):
            p = j + int(abs(F[j:, j]).argmax())
            F[[j, p]], perm[[j, p]] = F[[p, j]], perm[[p, j]]
            F[j + 1 :, j] /= F[j, j]
            F[j + 1 :, j + 1 : end] -= np.outer(F[j + 1 :, j], F[j, j + 1 : end])
        for j in range(k, end):
            F[j + 1 : end, end:] -= np.outer(F[j + 1 : end, j], F[j, end:])
        L, U = rw.round_to(F[end:, k:end], "bf16"), rw.round_to(F[k:end, end:], "bf16")
        F[end:, end:] -= L @ U
    F = rounded(F, rw.BF16)
    return perm, np.tril(F, -1) + np.eye(len(A)), np.triu(F)


@each_backend
@pytest.mark.parametrize("exponent", [1, 4, 8])
def test_bf16_factors_are_as_good_as_a_model_of_them(backend, exponent):
    A = randsvd(200, 10.0**exponent, mode=3, rng=exponent).A
    perm, L, U = tensor_lu(A)
    model = abs(A[perm] - L @ U).max() / abs(A).max()
    for array in (A, np.asfortranarray(A)):
        L, U = triangles(backend.matrix(array, "bf16").lu())
        error = abs(A - L @ U)
        assert model / 3 <= error.max() / abs(A).max() <= 3 * model
        # Operands of products are rounded, and then the factors: four times u, and n u32.
        assert (error <= (4.1 * rw.BF16.unit_roundoff + 400 * U32) * (abs(L) @ abs(U))).all()


@each_format
@each_size
@each_layout
def test_cholesky_reads_the_lower_triangle_only(fmt, n, layout):
    A = definite(n, fmt)
    for rubbish in (7.0, 1e300, np.nan):
        half = np.tril(A) + np.triu(np.full((n, n), rubbish), 1)
        F = native.matrix(LAYOUTS[layout](half), fmt).cholesky()
        L = F.L
        assert F.perm is F.order is None
        assert np.array_equal(F.U, L.T)
        assert not np.triu(L, 1).any()
        computed = native_dense.COMPUTED_IN[fmt].unit_roundoff
        # The factors are rounded; for BF16 so are operands of products before.
        stored = (4.1 if fmt == rw.BF16 else 2.1) * fmt.unit_roundoff if fmt not in WIDE else 0.0
        bound = (1.1 * (n + 1) * computed + stored + n * rw.FP64.unit_roundoff) * abs(L) @ abs(L.T)
        assert (abs(A - L @ L.T) <= bound + n * fmt.min_subnormal).all()
        assert F.entries == n * (n + 1) // 2
        check_solves(F, np.tril(A) + np.tril(A, -1).T, fmt)


def check_solves(F, A, fmt):
    """Backward error of substitution with the factors, and blocks against single columns."""
    n, u = len(A), max(fmt.unit_roundoff, native_dense.COMPUTED_IN[fmt].unit_roundoff)
    L, U = triangles(F)
    B = rounded(np.random.default_rng(n).uniform(-1, 1, (n, 4)), fmt)
    before = B.copy()
    for transpose in (False, True):
        X = F.solve(B, transpose)
        assert X.dtype == np.float64
        assert np.array_equal(X, rounded(X, fmt))
        T, product = (A.T, (abs(L) @ abs(U)).T) if transpose else (A, abs(L) @ abs(U))
        # Two substitutions with n u each; a solution is rounded when it is stored; and float64
        # computes the residual.
        bound = (4 * n + 6) * u * (product @ abs(X)) + n * fmt.min_subnormal * abs(A).max()
        bound += (n + 1) * rw.FP64.unit_roundoff * (abs(T) @ abs(X) + abs(B))
        assert (abs(B - T @ X) <= bound).all()
        for same in (B.copy(order="F"), B[:, ::-1][:, ::-1], np.repeat(B, 2, axis=1)[:, ::2]):
            assert np.array_equal(F.solve(same, transpose), X)
        for j in range(4):
            x = F.solve(B[:, j], transpose)
            assert (abs(B[:, j] - T @ x) <= 2 * bound[:, j]).all()
        assert F.solve(B[:, :0], transpose).shape == (n, 0)
    assert np.array_equal(B, before)


@each_format
@each_size
@pytest.mark.parametrize("layout", ["C", "Fortran"])
def test_solves(fmt, n, layout):
    A = general(n, fmt)
    check_solves(native.matrix(LAYOUTS[layout](A), fmt).lu(), A, fmt)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("columns", [None, 1, 3, 5])
@pytest.mark.parametrize("granted", [1, 4])
def test_threads_share_the_substitution_of_small_systems(monkeypatch, flip, columns, granted):
    """By our kernel or by LAPACK's: the same backward error, and b stays as it is."""
    monkeypatch.setattr(native_dense, "factorization_threads", lambda: granted)
    n, rng = 700, np.random.default_rng(4)
    A = rng.standard_normal((n, n))
    b = rng.standard_normal(n if columns is None else (n, columns))
    given = b.copy()
    lu, swaps, info = native_dense.getrf(np.array(A, order="F"))
    assert info == 0
    x = native_dense.getrs(lu, swaps, b, flip)
    assert x.shape == b.shape
    assert (b == given).all()
    assert backward_error(A.T if flip else A, x, b) <= n * 2.0**-53


@each_wide_format
@each_size
@each_layout
def test_qr(fmt, n, layout):
    A, u = general(n, fmt), fmt.unit_roundoff
    F = native.matrix(LAYOUTS[layout](A), fmt).qr()
    Q, R = F.L, F.U
    # Householder QR: Higham 2002, theorem 19.4, with a modest constant.
    assert np.linalg.norm(Q.T @ Q - np.eye(n)) <= 10 * n * u
    assert np.linalg.norm(A - Q @ R) <= 10 * n * u * np.linalg.norm(A)
    assert np.array_equal(R, np.triu(R))
    assert (F.entries, F.method, F.perm, F.order) == (n * n, "qr", None, None)
    applied = (F, F.to(rw.FP64), F.to(rw.FP32).to(rw.FP32))
    for G, unit in zip(applied, (u, u, max(u, U32)), strict=True):
        for transpose, T in ((False, A), (True, A.T)):
            B = general(n, fmt, seed=1)[:, :2]
            X = G.solve(B, transpose)
            size = np.linalg.norm(A) * np.linalg.norm(X) + np.linalg.norm(B)
            assert np.linalg.norm(T @ X - B) <= 20 * n * unit * size
            np.testing.assert_allclose(G.solve(B[:, 0], transpose), X[:, 0], rtol=n**3 * unit)
            assert G.solve(B[:, :0], transpose).shape == (n, 0)


def test_qr_stays_stable_where_the_entries_of_lu_grow():
    n = 60
    A = np.eye(n) - np.tril(np.ones((n, n)), -1)
    A[:, -1] = 1.0  # Wilkinson's: the last pivot of LU is 2^(n-1)
    b = np.random.default_rng(0).standard_normal(n)
    errors = {}
    for method in ("lu", "qr"):
        x = native.analyse(A, method).factorize(np.asfortranarray(A), "fp64").solve(b)
        errors[method] = abs(A @ x - b).max() / (abs(A).sum(1).max() * abs(x).max())
    assert errors["qr"] <= 1e-15
    assert errors["lu"] >= 1e-3


def test_failures_of_qr():
    assert status_of(native.matrix(np.zeros((2, 2)), rw.FP64).qr) is Status.ZERO_PIVOT
    assert status_of(native.matrix(np.array([[1.0, np.nan], [0, 1]]), "fp64").qr) is (
        Status.NONFINITE_INPUT
    )
    assert status_of(native.matrix(np.full((2, 2), 1e39), rw.FP32).qr) is Status.OVERFLOW
    F = native.matrix(np.eye(2), rw.FP64).qr()
    assert status_of(lambda: F.solve(np.array([1.0, np.inf]))) is Status.NONFINITE_INPUT
    for call in (native.matrix(np.eye(2), rw.FP16).qr, lambda: F.to(rw.BF16)):
        with pytest.raises(UnsupportedFormat, match="QR runs natively in fp32 and fp64"):
            call()


@each_wide_format
@each_size
@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("symmetric_mode", [True, False])
def test_sparse(fmt, n, kind, symmetric_mode):
    backend = NativeBackend(symmetric_mode=symmetric_mode)
    u, x = fmt.unit_roundoff, general(n, fmt)[0]
    for A in (sparse_general(n, fmt), sparse.csr_array(np.tril(dense(sparse_general(n, fmt))))):
        M = backend.matrix(A.asformat(kind), fmt)
        D = A.toarray()
        for transpose, T in ((False, D), (True, D.T)):
            error = abs(M.matvec(x, transpose) - exact(T, x))
            assert (error <= (n + 1) * u * (abs(T) @ abs(x))).all()
        F = M.lu()
        L, U = triangles(F)
        assert (abs(D - L @ U) <= 2.2 * n * u * (abs(L) @ abs(U))).all()
        check_solves(F, D, fmt)
    S = sparse.csr_array(definite(n, fmt) * (abs(np.subtract.outer(range(n), range(n))) < 3))
    half = sparse.csr_array(np.tril(S.toarray()) + np.triu(np.full((n, n), 7.0), 1))
    F = backend.matrix(half.asformat(kind), fmt).cholesky()
    L, U = triangles(F)
    assert np.array_equal(dense(F.U), dense(F.L).T)
    assert (abs(S.toarray() - L @ U) <= 2.2 * (n + 2) * u * (abs(L) @ abs(U))).all()
    check_solves(F, S.toarray(), fmt)


def test_symmetric_mode_is_for_symmetric_patterns(monkeypatch):
    seen = []
    original = superlu_calls.splu

    def spy(A, **options):
        seen.append(options.get("permc_spec", "COLAMD"))
        return original(A, **options)

    monkeypatch.setattr(superlu_calls, "splu", spy)
    for problem in (poisson_2d(8), LinearSystem(sparse.csr_array(np.triu(general(9))), np.ones(9))):
        for mode in (True, False):
            NativeBackend(symmetric_mode=mode).matrix(problem.A, "fp64").lu()
    # A long diagonal does not make a pattern symmetric.
    NativeBackend().matrix(sparse.eye_array(50, k=1) + sparse.eye_array(50), "fp64").lu()
    assert seen == ["MMD_AT_PLUS_A", "COLAMD", "COLAMD", "COLAMD", "COLAMD"]


def test_duplicates_are_summed_in_float64_and_explicit_zeros_are_entries():
    # 1 + 2**-25 + 2**-25 is no more than 1 if its terms are rounded to FP32 and added there.
    values, starts = np.array([1.0, 2.0**-25, 2.0**-24, 4.0, 0.0]), np.array([0, 4, 5])
    indices = np.array([0, 0, 0, 1, 1])
    A = sparse.csr_array((values, indices, starts), shape=(2, 2))
    M = native.matrix(A, "fp32")
    assert M.entries == 3
    assert list(M.matvec(np.array([1.0, 0.0]))) == [1 + 2.0**-23, 0.0]
    assert len(A.data) == 5  # the caller's matrix is left alone
    assert status_of(M.lu) is Status.ZERO_PIVOT  # its only entry in row 1 is zero
    A.data[-1] = 2.0
    x = native.matrix(A, "fp64").lu().solve(np.array([5.0, 2.0]))
    np.testing.assert_allclose(x, [1 / (1 + 3 * 2.0**-25), 1.0], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@each_format
def test_narrow_input(fmt, dtype):
    A = general(20).astype(dtype)
    for M in (native.matrix(A, fmt), native.matrix(np.asfortranarray(A), fmt)):
        wide = native.matrix(A.astype(np.float64), fmt)
        x = np.ones(20, dtype=dtype)
        # C and Fortran order differ in rounding, and in the pivots.
        close = 40 * max(fmt.unit_roundoff, U32)
        np.testing.assert_allclose(M.matvec(x), wide.matvec(x), rtol=close, atol=close)
        if fmt in WIDE:
            A64, y = A.astype(np.float64), M.lu().solve(x)
            assert abs(A64 @ y - 1).max() <= 40 * fmt.unit_roundoff * abs(A64).sum() * abs(y).max()
    if fmt in WIDE:
        S = sparse.csr_array(A.astype(np.float32))
        x = native.matrix(S, fmt).lu().solve(np.ones(20))
        assert abs(S @ x - 1).max() <= 40 * fmt.unit_roundoff * abs(S).sum() * abs(x).max()


@each_backend
@each_format
def test_memory_order_changes_no_more_than_rounding_does(backend, fmt):
    problem = randsvd(130, 10.0, mode=3, rng=0)
    b, u = problem.b, fmt.unit_roundoff
    solutions = [backend.matrix(put(problem.A), fmt).lu().solve(b) for put in LAYOUTS.values()]
    for x in solutions:
        assert abs(x - problem.x_true).max() <= 50 * 10.0 * u * abs(problem.x_true).max()
    for put in LAYOUTS.values():
        y = backend.matrix(put(problem.A), fmt).matvec(b)
        assert abs(y - problem.A @ b).max() <= 4 * u * (abs(problem.A) @ abs(b)).max()
        assert backend.sizes(put(problem.A).astype(np.float64, order="K")) == pytest.approx(
            (abs(problem.A).sum(axis=1).max(), abs(problem.A).max()), rel=1e-14
        )


# --- factors in other formats


@each_backend
@pytest.mark.parametrize("kind", ["lu", "cholesky"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (rw.BF16, rw.FP32),
        (rw.BF16, rw.FP64),
        (rw.FP16, rw.FP32),
        (rw.FP16, rw.FP64),
        (rw.FP32, rw.FP32),
        (rw.FP32, rw.FP64),
    ],
    ids=str,
)
def test_higher_formats_keep_the_numbers(backend, kind, order, low, high):
    A = np.array(definite(70), order=order)
    F = getattr(backend.matrix(A, low), kind)()
    G = F.to(high)
    assert (F.fmt, G.fmt) == (low, high)
    assert np.array_equal(F.L, G.L)
    assert np.array_equal(F.U, G.U)
    # Applied in the higher arithmetic: an accurate solution with a product of low factors.
    L, U = triangles(F)
    b = rounded(np.ones(70) / 3, high)
    for transpose, T in ((False, L @ U), (True, (L @ U).T)):
        x = G.solve(b, transpose)
        assert abs(T @ x - b).max() <= 400 * high.unit_roundoff * abs(T).sum(1).max()
    assert np.array_equal(F.to(high).to(low).L, F.L)


def test_factors_in_a_higher_format_share_their_memory():
    F = native.matrix(np.asfortranarray(definite(40)), rw.FP32)
    for factors in (F.lu(), F.cholesky()):
        assert np.shares_memory(factors.to(rw.FP64)._packed, factors._packed)


@each_wide_format
@pytest.mark.parametrize("kind", ["lu", "cholesky"])
@pytest.mark.parametrize("low", [rw.FP32, rw.BF16, rw.FP16], ids=str)
def test_lower_formats_round(fmt, kind, low):
    F = getattr(native.matrix(np.asfortranarray(definite(70)), fmt), kind)()
    G = F.to(low)
    assert np.array_equal(G.L, rounded(F.L, low))
    assert np.array_equal(G.U, rounded(F.U, low))
    x = G.solve(np.ones(70))
    assert np.array_equal(x, rounded(x, low))
    # And up again: what was lost stays lost.
    assert np.array_equal(G.to(rw.FP64).L, G.L)


@pytest.mark.parametrize("kind", ["lu", "cholesky"])
def test_sparse_factors_in_the_other_format(kind):
    A = poisson_2d(9).A
    for fmt, other in ((rw.FP32, rw.FP64), (rw.FP64, rw.FP32)):
        F = getattr(native.matrix(A, fmt), kind)()
        G = F.to(other)
        assert F.to(fmt) is F
        for f, g in ((F.L, G.L), (F.U, G.U)):
            assert np.array_equal(dense(g), rounded(dense(f), other))
        assert np.array_equal(G.perm, F.perm)
        assert np.array_equal(G.order, F.order)
        L, U = triangles(G)
        for transpose, T in ((False, L @ U), (True, (L @ U).T)):
            x = G.solve(np.ones(81), transpose)
            bound = 10 * other.unit_roundoff * abs(T).sum(1).max() * abs(x).max()
            assert abs(T @ x - 1).max() <= bound
    if kind == "cholesky":
        assert np.array_equal(dense(G.U), dense(G.L).T)


def test_factors_beyond_the_range_of_a_lower_format():
    big, tiny = np.eye(3) * 1e39, np.eye(3) * 1e-50
    for kind in ("lu", "cholesky"):
        for put in (np.asarray, sparse.csr_array):
            F = getattr(native.matrix(put(big), "fp64"), kind)()
            if kind == "lu":
                assert status_of(lambda F=F: F.to(rw.FP32)) is Status.OVERFLOW
            F = getattr(native.matrix(put(tiny**2 if kind == "cholesky" else tiny), "fp64"), kind)()
            assert status_of(lambda F=F: F.to(rw.FP32)) is Status.ZERO_PIVOT
    F = native.matrix(np.eye(3) * 1e5, "fp32").lu()
    assert status_of(lambda: F.to(rw.FP16)) is Status.OVERFLOW
    assert F.to(rw.BF16).fmt == rw.BF16
    F = native.matrix(np.eye(3) * 1e-10, "fp32").lu()
    assert status_of(lambda: F.to(rw.FP16)) is Status.ZERO_PIVOT


# --- failures have names


def poisoned(n, value, place):
    A = definite(n)
    A[place] = value
    return A


@each_backend
@each_format
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (129, 129), (129, 0), (80, 70), (0, 129)])
def test_nonfinite_entries(backend, fmt, value, place):
    A = poisoned(130, value, place)
    for array in (A, np.asfortranarray(A)):
        M = backend.matrix(array, fmt)
        assert status_of(M.lu) is Status.NONFINITE_INPUT
        assert status_of(lambda M=M: M.matvec(np.ones(130))) is Status.NONFINITE_INPUT
        if place[0] >= place[1]:
            assert status_of(M.cholesky) is Status.NONFINITE_INPUT
    if fmt in WIDE:
        S = sparse.csr_array(A)
        assert status_of(lambda: backend.matrix(S, fmt).lu()) is Status.NONFINITE_INPUT


OUT_OF_RANGE = [(rw.FP16, 1e5, 1e-9), (rw.FP32, 1e39, 1e-50), (rw.BF16, 3.4e38, 1e-45)]


@each_backend
@pytest.mark.parametrize(("fmt", "beyond", "below"), OUT_OF_RANGE, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_entries_out_of_range(backend, fmt, beyond, below, order):
    A = np.array(np.eye(100), order=order)
    M, N = backend.matrix(A * beyond, fmt), backend.matrix(A * below, fmt)
    assert status_of(M.lu) is Status.OVERFLOW
    assert status_of(lambda: M.matvec(np.ones(100))) is Status.OVERFLOW
    assert status_of(N.lu) is Status.ZERO_PIVOT
    assert not N.matvec(np.ones(100)).any()
    if fmt in (rw.FP16, rw.FP32):  # what overflowed before is told, not a zero pivot in its way
        holed = backend.matrix(A * beyond * (np.arange(100) > 0), fmt)
        assert status_of(holed.lu) is Status.OVERFLOW
    if fmt == rw.BF16:  # the square root is in range again
        M.cholesky().solve(np.ones(100))
    else:
        assert status_of(M.cholesky) is Status.OVERFLOW
    if fmt == rw.FP32:
        S = sparse.csr_array(A)
        assert status_of(lambda: backend.matrix(S * beyond, fmt)) is Status.OVERFLOW
        assert status_of(lambda: backend.matrix(S * below, fmt).lu()) is Status.ZERO_PIVOT
        lost = backend.matrix(S * below, fmt)
        assert status_of(lost.cholesky) is Status.NOT_POSITIVE_DEFINITE


@each_wide_format
def test_overflow_inside_sparse_factorizations(fmt):
    # The pivot is infinite and all else finite: a solution would be finite too, and wrong.
    A = fmt.max * np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for mode in (True, False):
        M = NativeBackend(symmetric_mode=mode).matrix(sparse.csr_array(A), fmt)
        assert status_of(M.lu) is Status.OVERFLOW
    # Growth of 2**k in the last column.
    n = 200 if fmt == rw.FP32 else 1100
    W = np.eye(n) - np.tril(np.ones((n, n)), -1)
    W[:, -1] = 1.0
    assert status_of(native.matrix(np.asfortranarray(W), fmt).lu) is Status.OVERFLOW


@each_backend
@each_format
@pytest.mark.parametrize("exponent", [-60, -45, -44, -42, -38, -30, -8, -5, 0, 4, 30, 36, 38, 40])
def test_no_scale_makes_garbage(backend, fmt, exponent):
    n, scale = 90, 10.0**exponent
    M = backend.matrix(np.asfortranarray(general(n) * scale), fmt)
    A = rounded(general(n) * scale, fmt)
    F, status = attempt(M.lu)
    if F is None:
        assert status in (Status.OVERFLOW, Status.ZERO_PIVOT)
        assert not fmt.min_normal * 1e3 < scale < fmt.max / 1e3
        return
    L, U = triangles(F)
    assert np.isfinite(L).all()
    assert np.isfinite(U).all()
    computed = native_dense.COMPUTED_IN[fmt]
    bound = (1.1 * n * computed.unit_roundoff + 5.2 * fmt.unit_roundoff) * (abs(L) @ abs(U))
    # The processor may take subnormal numbers as zero, and a format ends somewhere.
    lost = n * computed.min_normal + n * fmt.min_subnormal * (abs(L).max() + abs(U).max())
    assert (abs(A - L @ U) <= bound + lost + 2 * fmt.min_subnormal).all()
    x, status = attempt(lambda: F.solve(np.ones(n)))
    if x is None:
        assert status is Status.OVERFLOW
        assert scale < 1e3 / fmt.max * n or scale < fmt.min_normal * 1e3
    else:
        assert np.isfinite(x).all()


@each_format
def test_zero_columns_and_rows(fmt):
    for n, k in ((1, 0), (3, 1), (130, 0), (130, 64), (130, 129)):
        for axis in (0, 1):
            A = general(n, fmt)
            A[(slice(None), k) if axis else k] = 0.0
            for array in (A, np.asfortranarray(A)):
                assert status_of(native.matrix(array, fmt).lu) is Status.ZERO_PIVOT
            S = A @ A.T
            S[k] = S[:, k] = 0.0
            assert status_of(native.matrix(S, fmt).cholesky) is Status.NOT_POSITIVE_DEFINITE


@each_wide_format
@pytest.mark.parametrize("symmetric_mode", [True, False])
def test_singular_sparse_matrices(fmt, symmetric_mode):
    backend = NativeBackend(symmetric_mode=symmetric_mode)
    structurally = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    empty_row = np.array([[1.0, 2.0], [0.0, 0.0]])
    numerically = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    for A in (structurally, empty_row, numerically, numerically.T, np.zeros((4, 4))):
        assert status_of(backend.matrix(sparse.csr_array(A), fmt).lu) is Status.ZERO_PIVOT
    for A in (empty_row, np.zeros((4, 4)), numerically, [[0.0, 1.0], [1.0, 0.0]], -np.eye(2)):
        M = backend.matrix(sparse.csr_array(np.array(A)), fmt)
        assert status_of(M.cholesky) is Status.NOT_POSITIVE_DEFINITE


@each_wide_format
def test_indefinite_matrices(fmt):
    for n in SIZES[1:]:
        A = definite(n)
        A[-1, -1] = -1.0
        for put in (np.asarray, np.asfortranarray, sparse.csr_array):
            M = native.matrix(put(A), fmt)
            proved = put is not sparse.csr_array and fmt != rw.FP64
            expected = Status.INDEFINITE if proved else Status.NOT_POSITIVE_DEFINITE
            assert status_of(M.cholesky) is expected


def unit_lower(n, rng):
    """Small integers below a unit diagonal: ``L D L'`` is exact, and has the signs of D."""
    return np.tril(rng.integers(-2, 3, (n, n)), -1) + np.eye(n)


@pytest.mark.parametrize("put", [np.ascontiguousarray, np.asfortranarray])
def test_rounding_errors_do_not_prove_that_a_matrix_is_indefinite(put):
    rng, found = np.random.default_rng(3), []
    for n in [*range(2, 60), 150]:
        L, D = unit_lower(n, rng), rng.choice([2, 3, 5, 7], n)  # no squares: pivots are rounded
        # Exactly positive definite, but its condition number soon is far beyond 1/u.
        found.append(attempt(native.matrix(put(L * D @ L.T), rw.FP32).cholesky)[1])
    assert set(found) == {None, Status.NOT_POSITIVE_DEFINITE}


@pytest.mark.parametrize("put", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_negative_pivot_proves_that_a_matrix_is_indefinite(put, dtype):
    rng = np.random.default_rng(4)
    for n in (1, 2, 5, 9, 130):
        L = unit_lower(n, rng) if n < 10 else np.eye(n) + np.eye(n, k=-1)
        for k in {0, n // 2, n - 1}:
            D = np.ones(n)
            D[k] = -1.0
            A = put((L * D @ L.T).astype(dtype))
            with pytest.raises(
                rw.backends.ArithmeticFailure, match=f"at column {k}: indefinite"
            ) as caught:
                native.matrix(A, rw.FP32).cholesky()
            assert caught.value.status is Status.INDEFINITE


# --- what is not native is refused


OWN = rw.FloatFormat("mine", 12, -100, 100)


@pytest.mark.parametrize("fmt", [rw.formats.TF32, rw.formats.E5M2, rw.formats.E4M3, OWN], ids=str)
def test_other_formats_are_refused(fmt):
    x, h = np.ones(2), np.ones(3)
    for call in (
        lambda: native.matrix(np.eye(2), fmt),
        lambda: native.matrix(sparse.eye_array(2), fmt),
        lambda: native.matrix(np.eye(2), "bf16").lu().to(fmt),
        lambda: native.matrix(np.eye(2), "fp64").cholesky().to(fmt),
        lambda: native.matrix(sparse.eye_array(2), "fp32").lu().to(fmt),
        lambda: native.dot(x, x, fmt),
        lambda: native.axpy(1.0, x, x, fmt),
        lambda: native.scale(1.0, x, fmt),
        lambda: native.norm2(x, fmt),
        lambda: native.orthogonalize(np.eye(2), x, fmt),
        lambda: native.givens(0, h, h.copy(), h.copy(), h.copy(), fmt),
        lambda: native.solve_upper(np.eye(2), x, fmt),
        lambda: rw.LuIR().run(poisson_2d(3), [fmt, "fp64", "fp64"], "native"),
    ):
        with pytest.raises(UnsupportedFormat, match=rf"{fmt}.*; use (the|one of)") as error:
            call()
        assert "\n" not in str(error.value)
        assert not isinstance(error.value, rw.backends.ArithmeticFailure)


@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16], ids=str)
def test_sixteen_bit_sparse_matrices_are_refused(fmt):
    for kind in ("lu", "cholesky"):
        F = getattr(native.matrix(sparse.eye_array(2), "fp32"), kind)()
        with pytest.raises(UnsupportedFormat, match="fp32 and fp64 alone"):
            F.to(fmt)
    with pytest.raises(UnsupportedFormat, match="fp32 and fp64 alone"):
        native.matrix(sparse.eye_array(2), fmt)


def test_processors_without_bf16_instructions(monkeypatch):
    monkeypatch.setattr(_kernels, "native_bf16_levels", lambda: ["portable"])
    assert native_formats() == (rw.FP16, rw.FP32, rw.FP64)
    assert not supports("native", rw.BF16)
    backend = rw.backends.get_backend("native")
    for call in (
        lambda: backend.matrix(np.eye(2), "bf16"),
        lambda: backend.dot(np.ones(2), np.ones(2), "bf16"),
        lambda: rw.LuIR().run(randsvd(5, 10, rng=0), "bf16-fp64-fp64", "native"),
    ):
        with pytest.raises(UnsupportedFormat, match=r"no BF16 instructions .*; use fp32"):
            call()
    assert backend.matrix(np.eye(2), "fp16").lu().solve(np.ones(2)).tolist() == [1.0, 1.0]
    portable = NativeBackend(bf16_instructions="portable")
    assert portable.matrix(np.eye(2), "bf16").lu().solve(np.ones(2)).tolist() == [1.0, 1.0]
    outcome = rw.LuIR().run(randsvd(100, 10, rng=0), "bf16-fp64-fp64", portable)
    assert outcome.nbe <= 1e-15
    with pytest.raises(ValueError, match="'amx'; this machine has portable"):
        NativeBackend(bf16_instructions="amx")


@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP16], ids=str)
def test_sixteen_bit_vectors_are_rounded_when_stored(fmt):
    # As computed in FP32 on rounded operands: eight terms err by 8 u32 at most before that.
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (2, 8))
    a, b = rounded(x, fmt), rounded(y, fmt)

    def near(found, expected):
        assert np.array_equal(found, rounded(found, fmt))
        slack = fmt.unit_roundoff * abs(expected) + 10 * U32
        assert (abs(found - expected) <= slack).all()

    near(native.dot(x, y, fmt), a @ b)
    near(native.norm2(x, fmt), np.linalg.norm(a))
    near(native.axpy(0.3, x, y, fmt), b + rw.round_to(0.3, fmt) * a)
    near(native.scale(0.3, x, fmt), rw.round_to(0.3, fmt) * a)
    V = rounded(rng.uniform(-1, 1, (3, 8)) / 4, fmt)
    h, left = native.orthogonalize(V, x, fmt)
    for v, coefficient in zip(V, h, strict=True):
        near(coefficient, v @ a)
        a = native.axpy(-coefficient, v, a, fmt)
    assert np.array_equal(left, a)
    R = np.triu(rng.uniform(1, 2, (3, 3)))
    near(native.solve_upper(R[:1, :1], y[:1], fmt), b[:1] / rounded(R[:1, :1], fmt)[0])
    cosines, sines, column, g = np.zeros(1), np.zeros(1), np.array([3.0, 4.0]), np.array([5.0, 0.0])
    native.givens(0, cosines, sines, column, g, fmt)
    assert column.tolist() == [5.0, 0.0]
    near(np.array([*cosines, *sines, *g]), np.array([0.6, 0.8, 3.0, -4.0]))


# --- vectors


@each_wide_format
@pytest.mark.parametrize("n", [1, 7, 1000, 10_001, 25_000])
def test_vector_kernels_are_numpys_to_rounding(fmt, n):
    # gamma_n bounds would do for any order of the operations; sums in pieces do far better.
    rng = np.random.default_rng(n)
    u, dtype = fmt.unit_roundoff, np.float32 if fmt == rw.FP32 else np.float64
    x, y = rounded(rng.uniform(-1, 1, (2, n)), fmt)
    a, alpha = x.astype(dtype), dtype(0.3)
    exact = y + np.float64(alpha) * x  # one rounding if multiply and add are fused, two if not
    assert (abs(native.axpy(0.3, x, y, fmt) - exact) <= 4 * u * (abs(y) + abs(x))).all()
    assert np.array_equal(native.scale(0.3, x, fmt), alpha * a)
    assert abs(native.dot(x, y, fmt) - x @ y) <= 100 * u * (abs(x) @ abs(y))
    assert abs(native.norm2(x, fmt) - np.linalg.norm(x)) <= 100 * u * np.linalg.norm(x)
    V = rounded(rng.uniform(-1, 1, (3, n)) / np.sqrt(n), fmt)
    before = x.copy(), V.copy()
    h, left = native.orthogonalize(V, x, fmt)
    for v, coefficient in zip(V, h, strict=True):
        assert abs(coefficient - v @ a.astype(np.float64)) <= 100 * u * (abs(v) @ abs(a))
        a = a - dtype(coefficient) * v.astype(dtype)
    np.testing.assert_allclose(left, a, rtol=0, atol=10 * u)
    assert np.array_equal(x, before[0])
    assert np.array_equal(V, before[1])


@each_format
@pytest.mark.parametrize("n", [2, 30_000])
def test_norms_neither_overflow_nor_vanish_early(fmt, n):
    for size in (fmt.max / 2, fmt.min_normal):
        x = np.zeros(n)
        x[[0, -1]] = 0.75 * size, size
        expected = 1.25 * size
        assert abs(native.norm2(x, fmt) - expected) <= 4 * fmt.unit_roundoff * expected
    assert native.norm2(np.zeros(n), fmt) == 0.0
    assert status_of(lambda: native.norm2(np.full(n, fmt.max), fmt)) is Status.OVERFLOW


@each_format
@pytest.mark.parametrize("n", [3, 30_000])
def test_failures_of_long_and_short_vectors_have_the_same_names(fmt, n):
    ones, large = np.ones(n), np.full(n, fmt.max)
    V = np.ones((1, n))
    for bad, status in ((np.nan, Status.NONFINITE_INPUT), (np.inf, Status.NONFINITE_INPUT)):
        x = ones.copy()
        x[-1] = bad
        for call in (
            lambda x=x: native.dot(ones, x, fmt),
            lambda x=x: native.axpy(0.0, x, ones, fmt),
            lambda x=x: native.axpy(1.0, ones, x, fmt),
            lambda x=x: native.scale(0.0, x, fmt),
            lambda x=x: native.norm2(x, fmt),
            lambda x=x: native.orthogonalize(V, x, fmt),
            lambda bad=bad: native.scale(bad, ones, fmt),
        ):
            assert status_of(call) is status
    for call in (
        lambda: native.dot(large, 4 * ones, fmt),
        lambda: native.axpy(1.0, large, large, fmt),
        lambda: native.scale(2.0, large, fmt),
        lambda: native.orthogonalize(V, large, fmt),
        lambda: native.orthogonalize(-large[None], np.concatenate([[4.0], 0 * ones[1:]]), fmt),
    ):
        assert status_of(call) is Status.OVERFLOW
