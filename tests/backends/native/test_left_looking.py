"""The maximum matching, and the LU factorization of small sparse systems that builds on it."""

import numpy as np
import pytest
from exact import backward_error
from scipy import sparse
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

import roundwise as rw
import roundwise._kernels as _kernels
from roundwise.backends.emulated.ordering import has_regular_pattern
from roundwise.problems import convection_diffusion_2d, poisson_2d

U = 2.0**-53
MUCH = 1e12


FORMS = {"csr": 0, "csc": 1, "coo": 2}


def read(A):
    A = A if A.format in FORMS else sparse.csr_array(A)
    places = (A.row, A.col) if A.format == "coo" else (A.indptr, A.indices)
    kind = _kernels.ComplexLeftLookingLU if A.dtype.kind == "c" else _kernels.LeftLookingLU
    return kind(FORMS[A.format], A.shape[0], *places, A.data)


def analysed(A, most=MUCH, most_if_weak=MUCH):
    lu = read(A)
    lu.analyse(most, most_if_weak)
    return lu


def factorized(A, most=MUCH, most_if_weak=MUCH, low=False):
    lu = analysed(A, most, most_if_weak)
    if lu.result == "analysed":
        lu.factorize(low)
    return lu


def solution(A, b):
    lu, x = factorized(A), np.empty_like(b)
    assert lu.result == "factorized"
    lu.substitute(b, x)
    return x


def random_sparse(n, density, rng):
    return sparse.random_array((n, n), density=density, rng=rng, data_sampler=rng.standard_normal)


# Matching


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_regular_patterns_are_those_with_a_perfect_matching(index):
    """Against SciPy's matching, in patterns where about half of the random ones have one."""
    rng = np.random.default_rng(0)
    found = []
    for n in (1, 5, 20, 60, 200) * 12:
        A = sparse.csr_array(random_sparse(n, min(1.0, (np.log(n) + 1.0) / n), rng))
        A.indptr, A.indices = A.indptr.astype(index), A.indices.astype(index)
        perfect = (maximum_bipartite_matching(sparse.csr_array(abs(A)), "column") >= 0).all()
        assert has_regular_pattern(A) == perfect
        assert has_regular_pattern(A.tocsc()) == perfect
        found.append(perfect)
    assert 10 < sum(found) < 50


def test_matching_refuses_indices_out_of_range():
    with pytest.raises(ValueError, match="out of range"):
        _kernels.sparse_is_regular(np.array([0, 1], np.int32), np.array([1], np.int32))


# Factors


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("n", [1, 2, 7, 40, 150])
def test_random_systems_are_solved(form, n):
    """The backward error of LU with threshold pivoting is n u times the growth of its entries."""
    rng = np.random.default_rng(n)
    for _ in range(10):
        A = (
            random_sparse(n, min(1.0, 4 / n), rng)
            + sparse.eye_array(n, format="csr")[rng.permutation(n)]
        )
        A, b = sparse.csr_array(A).asformat(form), rng.standard_normal(n)
        x = solution(A, b)
        assert backward_error(A, x, b) <= 1e4 * n * U


GATE = (1e-10, 1.0, 0.0, 1e-200, 1e200)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("trans", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("low", "forward"), [(False, False), (True, False), (True, True)])
def test_verified_solutions_of_every_type_and_form(dtype, form, trans, low, forward):
    """With entries twice in one place, in any order; each column as if it were alone."""
    n, rng = 90, np.random.default_rng(4)
    A = sparse.coo_array(random_sparse(n, 0.05, rng) + 3 * sparse.eye_array(n))
    is_complex, single = np.dtype(dtype).kind == "c", dtype in (np.float32, np.complex64)
    wide = np.complex128 if is_complex else np.float64
    values = A.data * (np.exp(1j * rng.random(A.nnz)) if is_complex else 1.0)
    order = rng.permutation(2 * A.nnz)
    places = [np.concatenate([at, at])[order] for at in (A.row, A.col)]
    twice = sparse.coo_array((np.concatenate([values, values])[order].astype(wide), places))
    given = twice if form == "coo" else twice.asformat(form)
    lu = factorized(given, low=low)
    assert lu.is_low == low
    dense = twice.toarray().T if trans[0] else twice.toarray()
    dense = dense.conj() if trans[1] else dense
    B = rng.standard_normal((n, 11)) + (1j * rng.standard_normal((n, 11)) if is_complex else 0)
    B = B.astype(dtype)
    X, tolerance = np.empty_like(B), 1e-5 if single else 1e-13
    status, error, steps = lu.solve(B, X, *trans, forward, tolerance, *GATE[1:])
    assert (status, steps > 0) == (0, forward or (low and not single))
    for c in range(11):
        x, b = np.empty(n, dtype), B[:, c]
        assert lu.solve(b, x, *trans, forward, tolerance, *GATE[1:])[0] == 0
        assert np.array_equal(x, X[:, c])
        if not is_complex:
            assert backward_error(dense, x.astype(wide), b.astype(wide)) <= 1.001 * error
    np.testing.assert_allclose(dense @ X, B, rtol=0, atol=1e-4 if single else 1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_pivot_that_single_precision_does_not_hold_makes_factors_in_double(dtype):
    """The last one is 2^-30, what elimination leaves of 1 + 2^-30."""
    A = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-30]]).astype(dtype))
    for low in (False, True):
        lu = factorized(A, low=low)
        assert (lu.result, lu.is_low, lu.entries) == ("factorized", False, 4)
    assert lu.refactored(0, A.indptr, A.indices, A.data, True).result == "zero pivot"
    x = np.empty(2, dtype)
    lu.substitute(A @ np.array([3.0, -2.0]).astype(dtype), x)
    assert np.array_equal(x, [3.0, -2.0])


def test_squares_of_tiny_numbers_do_not_pass_for_zeros():
    """Of a complex system whose numbers are below 1e-162: their squares are zero."""
    A = sparse.csr_array(np.diag([1.0 + 1j, 2.0]))
    x = np.empty(2, complex)
    lu = factorized(A, low=True)
    assert lu.solve(np.full(2, 1e-200 + 0j), x, False, False, False, *GATE)[0] == 2
    assert lu.solve(np.zeros(2, complex), x, False, False, False, *GATE)[0] == 0
    assert np.array_equal(x, [0, 0])


def test_parts_of_a_complex_b_are_columns_of_a_real_system():
    A, rng = sparse.csr_array(poisson_2d(9).A), np.random.default_rng(6)
    b, x = rng.standard_normal(81) + 1j * rng.standard_normal(81), np.empty(81, complex)
    assert factorized(A).solve(b, x, False, False, False, *GATE)[0] == 0
    assert np.array_equal(x.real, solution(A, b.real.copy()))
    assert np.array_equal(x.imag, solution(A, b.imag.copy()))


def test_what_does_not_pass_the_gate():
    A, x = sparse.csr_array(poisson_2d(9).A), np.empty(81)
    lu = factorized(A)
    assert lu.solve(np.ones(81), x, False, False, False, 1e-30, *GATE[1:])[0] == 2
    assert lu.solve(np.full(81, np.nan), x, False, False, False, *GATE)[0] != 0
    hilbert = 1.0 / (1.0 + np.add.outer(np.arange(14.0), np.arange(14.0)))  # kappa is 1e18
    nearly = factorized(sparse.csr_array(hilbert))
    assert nearly.solve(np.ones(14), np.empty(14), False, False, False, *GATE)[0] == 1


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_next_matrix_with_the_same_places_keeps_the_pivots(dtype):
    rng = np.random.default_rng(8)
    A = sparse.csr_array(random_sparse(80, 0.06, rng) + 2 * sparse.eye_array(80)).astype(dtype)
    lu, arrays = factorized(A), (A.indptr, A.indices)
    same = lu.refactored(0, *arrays, A.data)
    x, y = np.empty(80, dtype), np.empty(80, dtype)
    for factors, answer in ((lu, x), (same, y)):
        factors.substitute(np.ones(80, dtype), answer)
    assert np.array_equal(x, y)
    drifted = sparse.csr_array(A.multiply(1 + 0.01 * rng.random((80, 80))))
    again = lu.refactored(
        1, *(getattr(drifted.tocsc(), at) for at in ("indptr", "indices", "data"))
    )
    assert again.result == "factorized"
    assert again.solve(np.ones(80, dtype), y, False, False, False, *GATE)[0] == 0
    np.testing.assert_allclose(drifted @ y, 1.0, atol=1e-10)
    other = sparse.csr_array(A + sparse.eye_array(80, k=40))
    assert lu.refactored(0, other.indptr, other.indices, other.data) is None
    weak = A.copy()
    weak.setdiag(1e-9)
    assert lu.refactored(0, *arrays, weak.data).result == "zero pivot"


def test_a_permuted_triangle_is_solved_without_any_elimination():
    """Each diagonal block has one row: no multiplication but the n divisions."""
    n, rng = 60, np.random.default_rng(3)
    triangle = sparse.triu(random_sparse(n, 0.2, rng), 1) + sparse.diags_array(
        np.arange(1.0, n + 1)
    )
    A = sparse.csr_array(triangle)[rng.permutation(n)][:, rng.permutation(n)]
    lu = factorized(A)
    assert lu.result == "factorized"
    assert lu.entries == A.nnz
    assert lu.work == n
    b = A @ np.ones(n)
    np.testing.assert_allclose(A @ solution(A, b), b, atol=1e-8 * abs(b).max())


def test_blocks_are_strongly_connected_components():
    """Entries between blocks stay as they are, so that they fill in nothing."""
    rng, m, count = np.random.default_rng(5), 6, 10
    parts = [sparse.coo_array(rng.standard_normal((m, m))) for _ in range(count)]
    blocks = sparse.block_diag(parts)
    above = sparse.triu(random_sparse(m * count, 0.1, rng), m)
    A = sparse.csr_array(blocks + above)
    assert connected_components(A, connection="strong")[0] == count
    shuffled = A[rng.permutation(m * count)][:, rng.permutation(m * count)]
    assert factorized(shuffled).entries == A.nnz


@pytest.mark.parametrize("A", [poisson_2d(20).A, convection_diffusion_2d(20, 0.1, (1.0, 3.0)).A])
def test_work_is_what_minimum_degree_counts(A):
    """With pivots on the diagonal U has the pattern of L': its multiplications are the squares."""
    A = sparse.csr_array(A)
    lu = factorized(A)
    pattern = _kernels.sparse_pattern(A.indptr, A.indices)
    entries, flops = _kernels.sparse_counts(pattern, _kernels.sparse_amd(pattern))
    assert lu.counted == flops
    assert lu.work == pytest.approx(flops, rel=0.02)
    assert lu.entries == pytest.approx(2 * entries - A.shape[0], rel=0.02)


def test_work_that_is_too_much_is_not_begun():
    A = sparse.csr_array(poisson_2d(20).A)
    counted, uncounted = analysed(A), analysed(A, 10.0)
    assert counted.result == "analysed"
    assert counted.counted == factorized(A).counted < np.inf
    assert uncounted.result == "too much work"
    assert (uncounted.counted, uncounted.work) == (np.inf, 0)
    with pytest.raises(ValueError, match="no factors"):
        counted.substitute(np.ones(400), np.empty(400))
    with pytest.raises(ValueError, match="nothing to go on with"):
        uncounted.factorize()


def grid_with_diagonal(diagonal):
    """The pattern of a grid, with random numbers off its diagonal."""
    A, rng = sparse.csr_array(poisson_2d(70).A, copy=True), np.random.default_rng(7)
    A.data[:] = rng.standard_normal(A.nnz)
    A.setdiag(diagonal)
    return A


def test_entries_beyond_the_count_are_noticed_long_before_the_work_is_done():
    """With a tiny diagonal pivots are elsewhere, of which the count knows nothing."""
    A = grid_with_diagonal(1e-9)
    lu = factorized(A)
    assert lu.result == "too much work"
    assert 0 < lu.work < lu.counted / 4


def test_a_weak_diagonal_is_seen_before_much_is_counted():
    lu = factorized(grid_with_diagonal(1e-9), most_if_weak=10.0)
    assert (lu.result, lu.counted, lu.work) == ("weak diagonal", np.inf, 0)
    assert lu.has_weak_diagonal
    assert factorized(grid_with_diagonal(30.0), most_if_weak=0.0).result == "factorized"


def test_pivots_of_blocks_with_one_row_are_not_weak():
    """Above the diagonal of a triangle entries may be as large as they like."""
    n = 40
    A = sparse.csr_array(sparse.eye_array(n) + 1e6 * sparse.eye_array(n, k=1))
    assert factorized(A, most_if_weak=0.0).result == "factorized"


def test_pivots_stay_on_a_diagonal_a_thousandth_as_large():
    """A grid whose diagonal is a hundredth of its other entries: the count is right."""
    A = sparse.csr_array(poisson_2d(12).A, copy=True)
    A.setdiag(0.01)
    lu = factorized(A)
    assert lu.result == "factorized"
    assert lu.work <= 1.02 * lu.counted


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_no_pivot(bad):
    A = sparse.csr_array(np.array([[1.0, 1.0, 0], [1.0, 1.0, 0], [0, 0, 2.0]]))
    A.data[0] = bad if bad else 1.0  # two equal rows, or a number that is none
    assert factorized(A).result == "zero pivot"


def test_singular_patterns():
    A = sparse.csr_array(np.array([[1.0, 1.0, 1.0], [0, 0, 1.0], [0, 0, 1.0]]))
    assert factorized(A).result == "singular pattern"
    assert factorized(sparse.csr_array((4, 4))).result == "singular pattern"


def test_rows_and_columns_of_any_size():
    """Scaling by powers of two changes no digit of a product, and no pivot by much."""
    rng = np.random.default_rng(11)
    A = sparse.csr_array(random_sparse(80, 0.08, rng) + 3 * sparse.eye_array(80))
    r, c = (np.ldexp(1.0, rng.integers(-200, 200, 80)) for _ in range(2))
    S = sparse.csr_array(sparse.diags_array(r) @ A @ sparse.diags_array(c))
    b = rng.standard_normal(80)
    np.testing.assert_allclose(solution(S, r * b) * c, solution(A, b), rtol=1e-9)


def test_arrays_are_checked():
    A = sparse.csr_array(poisson_2d(3).A)
    kind, arrays = _kernels.LeftLookingLU, (A.indptr, A.indices, A.data)
    for form, n, first, second, values in (
        (0, 9, A.indptr, A.indices, A.data[:-1].copy()),
        (0, 9, A.indptr, A.indices + 1, A.data),
        (0, 9, A.indptr[::-1].copy(), A.indices, A.data),
        (1, 8, A.indptr, A.indices, A.data),
        (2, 9, A.indices, A.indices - 1, A.data),
        (2, 9, A.indices, A.indices[1:].copy(), A.data),
        (3, 9, *arrays),
        (0, 9, A.indptr, A.indices, A.data.astype(np.float32)),
        (0, 9, A.indptr.astype(np.int64), A.indices, A.data),
    ):
        with pytest.raises(ValueError, match=r"pass|form is"):
            kind(form, n, first, second, values)
    for b, x in ((np.ones(8), np.empty(8)), (np.ones(9), np.empty(9, np.float32))):
        with pytest.raises(ValueError, match="differ in shape"):
            factorized(A).substitute(b, x)
    for b, x in (
        (np.ones(8), np.empty(8)),
        (np.ones(9), np.empty((9, 1))),
        (np.ones(9), np.empty(9, complex)),
    ):
        with pytest.raises(ValueError, match="pass"):
            factorized(A).solve(b, x, False, False, False, *GATE)


# What a plain solve makes of it


def graded(n, last):
    """Well-conditioned blocks, and one whose condition number is about 1 / last."""
    A = sparse.lil_array(4 * sparse.eye_array(n) - sparse.eye_array(n, k=1))
    A[n - 2 :, n - 2 :] = np.array([[1.0, 1.0], [1.0, 1.0 + last]])
    return sparse.csr_array(A)


def test_few_digits_are_corrected(recwarn):
    """kappa u is 1e-3: an x without any correction has three digits, a corrected one has more."""
    A = graded(50, 2.0**-43)
    x = rw.solve(A, A @ np.ones(50))
    np.testing.assert_allclose(x, np.ones(50), rtol=1e-6)
    assert not recwarn


@pytest.mark.parametrize("n", [50, 300])
def test_singular_systems_are_refused_even_if_solvable(n):
    """Also where a column of tiny numbers makes A^-1 large for another reason."""
    A = graded(n, 0.0)
    tiny = sparse.diags_array(np.r_[2.0**-60, np.ones(n - 1)])
    for S in (A, sparse.csr_array(A @ tiny), sparse.csc_array(tiny @ A)):
        with pytest.raises(rw.SolveFailed, match="A is singular"):
            rw.solve(S, S @ np.ones(n))


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_the_order_that_was_found_can_be_handed_on(form):
    A = convection_diffusion_2d(20, 0.1, (3.0, 5.0)).A.asformat(form)
    lu = analysed(A)
    assert lu.has_strong_diagonal
    pattern = _kernels.sparse_pattern(A.indptr, A.indices)
    assert np.array_equal(lu.pattern.indices, pattern.indices)
    assert np.array_equal(lu.pattern.indptr, pattern.indptr)
    assert np.array_equal(lu.order, _kernels.sparse_amd(pattern))


def test_orders_of_exchanged_rows_or_of_blocks_are_not_handed_on():
    """Of blocks only if there is nothing outside them."""
    A = poisson_2d(20).A
    apart = sparse.csr_array(sparse.block_diag([A, A]))
    pattern = _kernels.sparse_pattern(apart.indptr, apart.indices)
    assert np.array_equal(analysed(apart).order, _kernels.sparse_amd(pattern))
    triangular = sparse.csr_array(sparse.block_array([[A, A], [None, A]]))
    exchanged = sparse.csr_array(A[np.arange(400)[::-1]])
    for M in (triangular, exchanged):
        lu = analysed(M)
        assert len(lu.order) == 0
        assert lu.pattern.n == 0


@pytest.mark.parametrize(("smallest", "strong"), [(2.0**-9, True), (2.0**-12, False), (0.0, False)])
def test_a_diagonal_is_strong_if_all_of_its_entries_are(smallest, strong):
    A = np.eye(5) + np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1)
    A[2, 2] = smallest
    assert factorized(sparse.csr_array(A)).has_strong_diagonal == strong
