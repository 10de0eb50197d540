"""Dense kernels equal the slow reference bit for bit, on every level and thread count."""

import numpy as np
import pytest
import reference
from cases import FORMATS, ODD_FORMATS, same_bits
from hard_systems import spd

import roundwise as rw
from roundwise.backends.emulated.carriers import carrier_type

KERNEL_FORMATS = FORMATS + ODD_FORMATS
operation = rw.backends.get_backend("operation")


def data(fmt, *shape, seed=0):
    """Numbers of the format of moderate size, some of them zero."""
    rng = np.random.default_rng(seed)
    spread = 2.0 ** rng.integers(-3, 2, shape)
    x = rw.round_to(rng.standard_normal(shape) * spread, fmt)
    return np.where(rng.random(shape) < 0.1, 0.0, x)


def anywhere(fmt, *shape, seed=0):
    """Numbers from the whole range of the format: huge, tiny, subnormal, zero of both signs."""
    rng = np.random.default_rng(seed)
    exponent = rng.integers(fmt.emin - fmt.p, fmt.emax + 1, shape)
    x = rw.round_to(np.ldexp(rng.uniform(-1, 1, shape), exponent), fmt)
    return np.where(rng.random(shape) < 0.2, np.copysign(0.0, rng.uniform(-1, 1, shape)), x)


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_products_and_sums_over_the_whole_range(fmt, simd_level):
    x, y = anywhere(fmt, 40, 40, seed=1), anywhere(fmt, 40, 40, seed=2)
    op = reference.Arithmetic(fmt)
    compared = 0
    for a, b in zip(x, y, strict=True):
        alpha = float(b[0])
        products = np.array([op.multiply(alpha, v) for v in a])
        pairs = zip(products, b, strict=True)
        sums = np.array([op.add(w, p) if np.isfinite(p) else p for p, w in pairs])
        for expected, kernel, arguments in (
            (products, operation.scale, (alpha, a, fmt)),
            (sums, operation.axpy, (alpha, a, b, fmt)),
            (0.0 + products, operation.matrix(a[:, None], fmt).matvec, (b[:1],)),
        ):
            if np.isfinite(expected).all():
                compared += 1
                assert same_bits(kernel(*arguments), expected)
            else:
                with pytest.raises(rw.backends.ArithmeticFailure, match="overflow"):
                    kernel(*arguments)
    assert compared > 10


def matrix(fmt, n, seed=0):
    """A matrix whose LU stays in range even in tiny formats, and whose pivots are off-diagonal."""
    A = data(fmt, n, n, seed=seed) / 8
    return rw.round_to(np.roll(A + np.eye(n), 1, axis=0), fmt)


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_vector_kernels(fmt, simd_level):
    for n in (1, 7, 33):
        x, y = data(fmt, n, seed=1), data(fmt, n, seed=2)
        alpha = float(rw.round_to(-1.3, fmt))
        assert same_bits(operation.dot(x, y, fmt), reference.dot(fmt, x, y))
        assert same_bits(operation.axpy(alpha, x, y, fmt), reference.axpy(fmt, alpha, x, y))
        scaled = [reference.Arithmetic(fmt).multiply(alpha, v) for v in x]
        assert same_bits(operation.scale(alpha, x, fmt), scaled)
        if x.any():
            assert same_bits(operation.norm2(x, fmt), reference.norm2(fmt, x))


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_matvec(fmt, simd_level):
    for m, n in ((1, 1), (3, 20), (20, 3), (37, 11)):
        A, x, y = data(fmt, m, n), data(fmt, n, seed=1), data(fmt, m, seed=2)
        M = operation.matrix(A, fmt)
        assert same_bits(M.matvec(x), reference.matvec(fmt, A, x))
        assert same_bits(M.matvec(y, transpose=True), reference.matvec(fmt, A.T, y))


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_lu_and_solves(fmt, simd_level):
    for n in (1, 5, 18):
        A, B = matrix(fmt, n), data(fmt, n, 3, seed=4) / 4
        F = operation.matrix(A, fmt).lu()
        packed, perm = reference.lu(fmt, A)
        assert np.array_equal(F.perm, perm)
        assert same_bits(F.U, np.triu(packed))
        assert same_bits(F.L, np.tril(packed, -1) + np.eye(n))
        X, Y = F.solve(B), F.solve(B, transpose=True)
        for j in range(3):
            assert same_bits(
                X[:, j], reference.solve(fmt, packed, perm, b := rw.round_to(B[:, j], fmt))
            )
            assert same_bits(Y[:, j], reference.solve_transposed(fmt, packed, perm, b))
        assert same_bits(F.solve(B[:, 1]), X[:, 1])


@pytest.mark.parametrize("fmt", [rw.BF16, rw.FP64], ids=str)
def test_lu_past_the_block_size(fmt):
    # 40 > 32 crosses blocks, panels and vector tails.
    A = matrix(fmt, 40, seed=7)
    packed, perm = reference.lu(fmt, A)
    F = operation.matrix(A, fmt).lu()
    assert np.array_equal(F.perm, perm)
    assert same_bits(np.tril(F.L, -1) + F.U, packed)
    b = data(fmt, 40, seed=8)
    assert same_bits(F.solve(b), reference.solve(fmt, packed, perm, b))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_bits_do_not_depend_on_level_or_threads(fmt, threads):
    # Large enough for three threads: kernels start one for every 2^18 operations.
    n = 211
    A = rw.round_to(np.random.default_rng(0).standard_normal((n, n)) / 32 + np.eye(n), fmt)
    B = data(fmt, n, 40)
    wide = np.random.default_rng(1).standard_normal((1500, 1201)) / 64
    x = data(fmt, 1201, seed=2)
    results = []
    for level in rw.machine.threads.simd_levels():
        rw.machine.threads.set_simd_level(level)
        for count in (1, 2, 3):
            threads(count)
            F = operation.matrix(A, fmt).lu()
            M = operation.matrix(wide, fmt)
            y = M.matvec(x)
            results.append((F.L, F.U, F.solve(B), F.solve(B, transpose=True), y))
            results[-1] += (M.matvec(np.ones(1500), transpose=True),)
    for other in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("fmt", [rw.FP32, rw.FP64], ids=str)
def test_hardware_formats_equal_numpy_loops(fmt):
    dtype = carrier_type(fmt)
    rng = np.random.default_rng(3)
    A, x = rng.standard_normal((50, 60)).astype(dtype), rng.standard_normal(60).astype(dtype)
    y = np.zeros(50, dtype)
    for j in range(60):
        y += A[:, j] * x[j]
    assert same_bits(operation.matrix(A, fmt).matvec(x), y)


def test_vectors_are_rounded_on_entry():
    x = np.array([1 + 2.0**-20, 3.0])
    rounded = rw.round_to(x, "bf16")
    assert operation.dot(x, x, rw.BF16) == operation.dot(rounded, rounded, rw.BF16)


def test_norm2_neither_overflows_nor_underflows_needlessly():
    assert operation.norm2(np.full(4, 30000.0), rw.FP16) == 60000
    assert operation.norm2(np.full(4, 2.0**-20), rw.FP16) == 2.0**-19
    assert operation.norm2(np.full(4, 2.0**-149), rw.FP32) == 2.0**-148
    assert operation.norm2(np.full(4, 2.0**-1074), rw.FP64) == 2.0**-1073
    assert operation.norm2(np.zeros(3), rw.BF16) == 0


def test_factors_applied_in_another_format():
    A, b = matrix(rw.BF16, 20), data(rw.FP64, 20, seed=1)
    F = operation.matrix(A, rw.BF16).lu()
    wide = F.to(rw.FP64)
    assert wide.fmt == rw.FP64
    assert same_bits(wide.U, F.U)  # bf16's numbers are fp64's
    packed = np.tril(F.L, -1) + F.U
    assert same_bits(wide.solve(b), reference.solve(rw.FP64, packed, F.perm, b))
    assert F.to(rw.BF16) is F


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_cholesky(fmt, simd_level):
    for n in (1, 6, 17):
        A, b = rw.round_to(spd(n, 2), fmt), rw.round_to(data(fmt, n, seed=1) / 4, fmt)
        F = operation.matrix(A, fmt).cholesky()
        L = reference.cholesky(fmt, A)
        assert same_bits(F.L, L)
        y = reference.solve_triangular(fmt, L, b, lower=True, unit=False)
        assert same_bits(F.solve(b), reference.solve_triangular(fmt, L.T, y, False, False))


def test_cholesky_past_the_block_size(threads):
    A = rw.round_to(spd(70, 10), rw.BF16)
    L = reference.cholesky(rw.BF16, A)
    for count in (1, 3):
        threads(count)
        assert same_bits(operation.matrix(A, rw.BF16).cholesky().L, L)
    large = rw.round_to(spd(400, 10), rw.BF16)
    results = []
    for count in (1, 2, 3):
        threads(count)
        results.append(operation.matrix(large, rw.BF16).cholesky().L)
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_orthogonalize(fmt, simd_level):
    V, w = data(fmt, 3, 21) / 4, data(fmt, 21, seed=1)
    V = rw.round_to(V, fmt)
    h, left = operation.orthogonalize(V, w, fmt)
    expected_h, expected_left = reference.orthogonalize(fmt, V, w)
    assert same_bits(h, expected_h)
    assert same_bits(left, expected_left)


@pytest.mark.parametrize("fmt", KERNEL_FORMATS, ids=str)
def test_givens(fmt, simd_level):
    m = 5
    columns = data(fmt, m, m + 1, seed=3)
    ours, theirs = ([np.zeros(m), np.zeros(m), np.zeros(m + 1)] for _ in range(2))
    ours[2][0] = theirs[2][0] = float(rw.round_to(0.7, fmt))
    for j in range(m):
        h, k = columns[j, : j + 2].copy(), columns[j, : j + 2].copy()
        operation.givens(j, ours[0], ours[1], h, ours[2], fmt)
        reference.givens(fmt, j, theirs[0], theirs[1], k, theirs[2])
        assert same_bits(h, k)
        for mine, expected in zip(ours, theirs, strict=True):
            assert same_bits(mine, expected)
