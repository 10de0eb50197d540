"""The GPU's kernels, and the order that they run in, on the CPU (see `cuda_host`)."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from cuda_host import HostDevice

import roundwise as rw
from roundwise.backends import arrays
from roundwise.backends.contract import ToRefine
from roundwise.backends.cuda import cholesky, elimination, lu, matrix, plan, residual
from roundwise.backends.cuda.backend import CudaBackend
from roundwise.backends.cuda.products import PRODUCTS, split
from roundwise.backends.cuda.residual import probe_rows
from roundwise.backends.native import exact
from roundwise.features import probe
from roundwise.formats import get_format

rng = np.random.default_rng


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return HostDevice(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Several outer panels even for small n."""
    monkeypatch.setattr(plan, "_PLANS", {})  # they know the width of panels that they were made for
    monkeypatch.setattr(elimination, "outer_width", lambda n, sections: 64)
    monkeypatch.setattr(cholesky, "WIDTH", 64)


def factors_error(F, A):
    """``max |scale A[p] - L U|`` for A or its transpose, over the largest entry."""
    L, U, order = F.dense()
    M = (A.T if F.flipped else A)[order] * F.scale
    return np.abs(M - L @ U).max() / np.abs(M).max()


@pytest.mark.parametrize("pivoting", ["tournament", "local"])
@pytest.mark.parametrize("fmt", PRODUCTS)
@pytest.mark.parametrize(("n", "order"), [(1, "C"), (63, "C"), (130, "F"), (200, "C")])
def test_factors_are_those_of_the_matrix(device, fmt, pivoting, n, order):
    A = np.array(rng(n).standard_normal((n, n)), order=order)
    fmt = get_format(fmt)
    F = lu.factorize(device, A, fmt, pivoting)
    assert F.flipped == (order == "F" and n > 1)
    # Gaussian elimination: errors of n updates, each u times the entries, which grow little.
    assert factors_error(F, A) < 8 * n * max(fmt.unit_roundoff, 2.0**-53)


@pytest.mark.parametrize("fmt", ["fp64", "fp16x2"])
def test_outer_panels_of_several_blocks(device, fmt, monkeypatch):
    """The next panel's rows of U come from inverted blocks, and updates are cut into slices."""
    n, fmt = 1100, get_format(fmt)
    monkeypatch.setattr(elimination, "outer_width", lambda n, sections: 512)
    monkeypatch.setattr(elimination, "AT_ONCE", 1.0)
    A, b = rng(n).standard_normal((n, n)), rng(1).random(n)
    F = lu.factorize(device, A, fmt, "local")
    u = max(fmt.unit_roundoff, 2.0**-53)
    assert factors_error(F, A) < 8 * n * u
    x = F.solve(b)
    assert np.abs(b - A @ x).max() < 50 * n * u * np.abs(A).max() * np.abs(x).max()


def test_a_tournament_bounds_multipliers_where_a_window_does_not(device):
    n = 300
    A = rng(0).standard_normal((n, n))
    A[: n // 2] *= 1e-6  # every large pivot is beyond the window
    bounded = lu.factorize(device, A, rw.FP64, "tournament")
    bold = lu.factorize(device, A, rw.FP64, "local")
    assert np.abs(bounded.dense()[0]).max() < 10
    assert np.abs(bold.dense()[0]).max() > 1e5
    for F in (bounded, bold):
        assert sorted(F.dense()[2].tolist()) == list(range(n))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("pivoting", ["tournament", "butterfly"])
@pytest.mark.parametrize(("n", "order"), [(1, "C"), (3, "C"), (70, "F"), (301, "C")])
def test_substitution_solves_both_ways(device, dtype, pivoting, n, order):
    A = np.array(rng(n).standard_normal((n, n)) + 5 * np.sqrt(n) * np.eye(n), order=order)
    B = rng(1).random((n, 2))
    F = lu.factorize(device, A, rw.FP64, pivoting)
    for M, transpose in ((A, False), (A.T, True)):
        X = F.solve(B, dtype, transpose=transpose)
        assert X.dtype == dtype
        assert np.abs(B - M @ X).max() < 100 * n * np.finfo(dtype).eps
        x = F.solve(B[:, 0], dtype, transpose=transpose)
        assert np.abs(x - X[:, 0]).max() < 100 * n * np.finfo(dtype).eps * np.abs(x).max()


@pytest.mark.parametrize("fmt", PRODUCTS)
@pytest.mark.parametrize("n", [1, 65, 200])
def test_cholesky_factors_solve(device, fmt, n):
    M = rng(n).standard_normal((n, n))
    A = M @ M.T + n * np.eye(n)
    b = rng(1).random(n)
    F = cholesky.factorize(device, A, get_format(fmt))
    x = F.solve(b, np.float64)
    u = max(get_format(fmt).unit_roundoff, 2.0**-53)
    assert np.abs(b - A @ x).max() < 50 * n * u * np.abs(A).max() * np.abs(x).max()
    with pytest.raises(rw.backends.ArithmeticFailure, match="not_positive_definite"):
        cholesky.factorize(device, -A, get_format(fmt))


def drawn(n, kappa, seed=0):
    """A system whose singular values fall geometrically."""
    U, V = (np.linalg.qr(rng(seed + s).standard_normal((n, n)))[0] for s in (1, 2))
    return (U * np.geomspace(1, 1 / kappa, n)) @ V


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(("method", "fmt"), [("lu/local", "fp64"), ("lu/tournament", "fp16x2")])
def test_refinement_reads_back_once_for_each_correction(device, monkeypatch, method, fmt, columns):
    n, backend = 90, CudaBackend(device)
    A, B = drawn(n, 1e3), np.asfortranarray(rng(5).standard_normal((n, columns)))
    B[:, 0] *= 2.0**-30
    read = []
    norms = matrix.norms_of_blocks
    monkeypatch.setattr(matrix, "norms_of_blocks", lambda blocks: read.append(1) or norms(blocks))
    factors = backend.analyse(A, method).factorize(A, fmt)
    norm, target = np.abs(A).sum(axis=1).max(), 1e-15
    found = factors.refined(ToRefine(backend.matrix(A, "fp64"), norm, B, target))
    assert len(read) == 1 + len(found.history) // 2 + (columns > 1)
    assert len(found.history) // 2 in ((1, 2) if fmt == "fp16x2" else (0, 1))
    exactly = exact.residual(A, found.X, B)
    sizes = norm * np.abs(found.X).max(axis=0) + np.abs(B).max(axis=0)
    errors = np.abs(exactly).max(axis=0) / sizes
    assert (errors <= target + exact.error_of(n, exact.block_for(n))).all()
    assert found.error == found.errors.max() <= target
    assert np.allclose(found.R, exactly, rtol=1e-6, atol=1e-17 * sizes)


def test_refinement_that_does_not_get_there_is_left_to_others(device):
    n, backend = 60, CudaBackend(device)
    A, b = drawn(n, 1e12), rng(5).standard_normal((n, 1))
    factors = backend.analyse(A, "lu/tournament").factorize(A, "fp16")
    in_fp64 = backend.matrix(A, "fp64")
    norm = np.abs(A).sum(axis=1).max()
    assert factors.refined(ToRefine(in_fp64, norm, b, 1e-15)) is None  # stagnates
    assert factors.refined(ToRefine(in_fp64, norm, np.zeros((n, 1)), 1e-15)) is None
    assert factors.refined(ToRefine(backend.matrix(A, "fp64x2"), norm, b, 1e-15)) is None


@pytest.mark.parametrize("pivoting", ["tournament", "local"])
@pytest.mark.parametrize("column", [0, 63, 64, 150])
def test_the_first_column_without_a_pivot_is_named(device, pivoting, column):
    A = np.triu(rng(0).uniform(1, 2, (200, 200)))
    A[column:, column] = 0
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        lu.factorize(device, A, rw.FP64, pivoting)
    assert failure.value.status is rw.backends.Status.ZERO_PIVOT
    assert failure.value.column == column


@pytest.mark.parametrize("fmt", PRODUCTS)
@pytest.mark.parametrize(("n", "order"), [(1, "C"), (63, "C"), (130, "F"), (200, "C")])
def test_pivots_on_the_diagonal_leave_the_rows_where_they_are(device, fmt, n, order):
    A = np.array(rng(n).standard_normal((n, n)) + 3 * np.sqrt(n) * np.eye(n), order=order)
    fmt = get_format(fmt)
    F = lu.factorize(device, A, fmt, "diagonal")
    assert F.dense()[2].tolist() == list(range(n))
    assert factors_error(F, A) < 8 * n * max(fmt.unit_roundoff, 2.0**-53)
    # The LU without pivoting is unique: in FP64 it is the one of exact arithmetic.
    if fmt == rw.FP64:
        expected = (A.T if F.flipped else A).copy()
        for k in range(n):
            expected[k + 1 :, k] /= expected[k, k]
            expected[k + 1 :, k + 1 :] -= np.outer(expected[k + 1 :, k], expected[k, k + 1 :])
        assert np.allclose(F.triangles.lu[:, :n], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("column", [0, 63, 64, 150])
def test_a_zero_on_the_diagonal_is_no_pivot(device, column):
    A = np.eye(200)
    A[column, column], A[column, 199], A[199, column] = 0.0, 1.0, 1.0
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        lu.factorize(device, A, rw.FP64, "diagonal")
    assert failure.value.status is rw.backends.Status.ZERO_PIVOT
    assert failure.value.column == column
    lu.factorize(device, A, rw.FP64, "tournament")


def test_nan_and_overflow_are_failures(device):
    A = np.eye(100)
    A[70, 80] = np.nan
    with pytest.raises(rw.backends.ArithmeticFailure):
        lu.factorize(device, A, rw.FP64, "local")
    n = 100  # Wilkinson's matrix: the last column doubles in every step
    wilkinson = np.tril(-np.ones((n, n)), -1) + np.eye(n)
    wilkinson[:, -1] = 1
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        lu.factorize(device, wilkinson, rw.FP16, "local")
    assert failure.value.status is rw.backends.Status.OVERFLOW
    lu.factorize(device, wilkinson, rw.BF16, "local")  # its range is FP32's


def test_huge_and_tiny_numbers_fit_into_fp16_by_a_power_of_two(device):
    A = rng(0).standard_normal((130, 130))
    for factor in (2.0**300, 2.0**-300):
        F = lu.factorize(device, A * factor, rw.FP16, "tournament")
        reference = lu.factorize(device, A, rw.FP16, "tournament")
        assert np.array_equal(F.triangles.lu[:, :130], reference.triangles.lu[:, :130])


@pytest.mark.parametrize("fmt", ["fp16", "bf16", "fp16x2", "bf16x3"])
def test_parts_are_rounded_to_16_bits_and_add_up(device, fmt):
    products = PRODUCTS[fmt]
    x = (rng(0).standard_normal((37, 52)) * np.exp(rng(1).uniform(-5, 5, (37, 52)))).astype("f4")
    x[0, :3] = 0.0, -0.0, 1.0
    sections = len(products.left)
    out = np.zeros((37, sections * 52), dtype=np.uint16)
    status = np.array([7], dtype=np.int32)
    place = out.ctypes.data, sections * 52, 52
    source, overflow = (x.ctypes.data, 52), (3, status.ctypes.data)
    split(device, products, source, x.shape, place, products.left, overflow)
    short = rw.FP16 if products.kind == "float16" else rw.BF16
    rest, parts = x.astype(np.float64), []
    for _ in range(products.parts):
        parts.append(rw.round_to(rest, short))
        rest = rest - parts[-1]
    for section, part in enumerate(products.left):
        bits = out[:, 52 * section : 52 * (section + 1)]
        wide = bits.astype(np.uint32) << 16
        values = bits.view(np.float16) if short is rw.FP16 else wide.view(np.float32)
        assert np.array_equal(values.astype(np.float64), parts[part])
    spacing = short.min_subnormal  # of the smallest parts
    assert (np.abs(sum(parts) - x) <= get_format(fmt).unit_roundoff * np.abs(x) + spacing).all()
    x[5, 5] = 1e30
    split(device, products, source, x.shape, place, products.left, overflow)
    assert status[0] == (3 if short is rw.FP16 else 7)


@pytest.mark.parametrize("columns", [1, 2, 33, 70])
@pytest.mark.parametrize("block", [exact.EXACT, 7, 8, 16])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_residuals_keep_their_bound_in_rational_arithmetic(device, order, dtype, block, columns):
    n = 45
    A = np.array(rng(0).standard_normal((n, n)), dtype=dtype, order=order)
    X = np.array(rng(1).standard_normal((n, columns)), order="CF"[columns % 2])
    B = A @ X  # what is left is rounding errors
    R = residual.residual(device, A, X, B, block)
    u, bound = Fraction(2) ** -53, Fraction(exact.error_of(n, block))
    for i, j in np.ndindex(n, columns):
        if (i + j) % max(1, columns // 3):
            continue
        terms = [
            Fraction(float(a)) * Fraction(float(x)) for a, x in zip(A[i], X[:, j], strict=True)
        ]
        true = Fraction(float(B[i, j])) - sum(terms)
        size = sum(map(abs, terms)) + abs(Fraction(float(B[i, j])))
        assert (
            abs(Fraction(float(R[i, j])) - true) <= abs(Fraction(float(R[i, j]))) * u + bound * size
        )


@pytest.mark.parametrize("order", "CF")
def test_sizes_are_the_norms(device, order):
    A = np.array(rng(0).standard_normal((70, 90)), order=order)
    norm, largest = residual.row_sums(device, A)
    assert norm == pytest.approx(np.abs(A).sum(axis=1).max(), rel=1e-14)
    assert largest == np.abs(A).max()
    A[3, 4] = np.nan
    assert not np.isfinite(residual.row_sums(device, A)[1])


@pytest.mark.parametrize("n", [1, 3, 4, 5, 46])
def test_butterflies_are_applied_to_matrix_and_vectors_alike(device, n):
    A = rng(0).standard_normal((n, n))
    work = elimination.Elimination(device, n, rw.FP64)
    U, V = lu._mixed(device, A, 2.0, work, seed=1)

    def applied(diagonal, transposed):
        columns = np.eye(n)
        for column in columns:  # rows of the identity: a matrix is made of what they become
            args = column, n, n, diagonal, int(transposed)
            grid = max(1, -(-(n // 4) // 256)), 1
            device.launch("butterfly", "butterfly", grid, 256, args, np.float64)
        return columns.T

    assert np.allclose(applied(U, True), applied(U, False).T, rtol=1e-14, atol=1e-14)
    expected = 2.0 * applied(U, True) @ A @ applied(V, False)
    assert np.allclose(work.a[:, :n], expected, rtol=1e-13, atol=1e-13)
    assert np.linalg.cond(applied(U, False)) < 1.3


@pytest.mark.parametrize("records", [False, True])
def test_a_plan_that_is_kept_serves_other_matrices(device, monkeypatch, records):
    """Its addresses move with the memory that it works in; a graph is made for each place of it."""
    monkeypatch.setattr(plan, "DIRECT_RUNS", 1 if records else 100)
    n, kept = 100, []
    for seed in range(4):
        A, b = rng(seed).standard_normal((n, n)), rng(seed + 10).standard_normal(n)
        F = lu.factorize(device, A, rw.FP64, "local")
        kept.append(F)  # so that the next one's memory is elsewhere
        for _ in range(3):
            assert np.allclose(A @ F.solve(b), b, atol=1e-8)
    plans, graphs, items = plan.held()
    assert plans == 2  # of LU, and of substitution
    assert graphs == (4 if records else 0)  # substitution, for each place
    assert items > 0
    A, b = rng(0).standard_normal((n, n)), rng(5).standard_normal(n)
    assert np.allclose(A @ kept[0].solve(b), b, atol=1e-8)


def test_a_plan_that_runs_again_gives_the_same_bits(device, monkeypatch):
    """One by one while it is recorded, one by one again, and as a graph."""
    n = 130
    A, b = rng(0).standard_normal((n, n)), rng(1).standard_normal(n)
    F = lu.factorize(device, A, rw.FP64, "local")
    answers = [F.solve(b) for _ in range(plan.DIRECT_RUNS + 3)]
    assert plan.held()[1] == 1
    assert all(np.array_equal(x, answers[0]) for x in answers)


def test_plans_that_were_not_used_for_the_longest_time_are_dropped(device, monkeypatch):
    arena = np.zeros(8, dtype=np.uint8)

    def record(made):
        for name in range(10):
            made.signal(name)

    monkeypatch.setattr(plan, "MOST_ITEMS", 25)
    for n in (1, 2, 1, 3):
        plan.run_plan(device, n, record, arena)
    assert [key for _, key in plan._PLANS] == [1, 3]
    assert plan.held() == (2, 0, 20)


def test_memory_of_ever_new_places_does_not_grow(device):
    made = plan.Plan(device, np.zeros(8, dtype=np.uint8))
    made.first_run(lambda one: one.signal("done"))
    kept = [np.zeros(8, dtype=np.uint8) for _ in range(3 * plan.MOST_GRAPHS)]
    for arena in kept * 4:
        made.run(arena)
    assert made.graphs <= plan.MOST_GRAPHS
    assert len(made._runs) <= plan.MOST_GRAPHS


def test_threads_with_new_sizes_do_not_share_what_they_record(device):
    """What one thread launches while others record plans runs, and is in no plan of theirs."""

    def solved(thread):
        for n in range(40 + thread, 140, 12):
            A, b = rng(n).standard_normal((n, n)), rng(n + 1).standard_normal(n)
            F = lu.factorize(device, A, rw.FP64, "tournament")
            x = F.solve(b)
            r = residual.residual(device, A, x, b)
            assert np.abs(r).max() < 1e-8 * np.abs(A).sum(axis=1).max() * np.abs(x).max()
            assert np.allclose(r, b - A @ x, atol=1e-8)
        return thread

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(solved, range(4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", [5, 100])
def test_the_look_by_kernels_is_that_by_arrays(device, order, n):
    A = np.array(rng(n).standard_normal((n, n)) + 2 * np.eye(n), order=order)
    A[:, 2] = 0.0
    A[2, 2] = 1.0
    count = min(64, n)
    assert np.allclose(
        probe_rows(device, A, count), probe._read_rows(A, count), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("order", "CF")
def test_norms_of_columns_by_a_kernel(device, order):
    X = np.array(rng(0).standard_normal((700, 3)), order=order)
    Y, weights = np.asfortranarray(X[:, :2] * 3), rng(1).random(700)
    for given in (None, weights):
        scale = 1 if given is None else weights[:, None]
        found = arrays.device_norms(device, [X, Y], given)
        assert np.array_equal(found[0], np.abs(X * scale).max(axis=0))
        assert np.array_equal(found[1], np.abs(Y * scale).max(axis=0))
    X[5, 1] = np.nan
    assert np.isnan(arrays.device_norms(device, [X], None)[0]).tolist() == [False, True, False]
