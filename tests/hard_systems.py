"""Systems that break solvers: growth, scaling, range, singularity. Each is ``name: (A, b)``."""

import numpy as np
from scipy import linalg, sparse

rng = np.random.default_rng


def growth_systems():
    """Partial pivoting lets U grow: the classical matrices, and ill-conditioned named ones."""
    for n in (20, 55, 120, 200, 500):
        yield f"Wilkinson {n}", *with_random_b(wilkinson(n))
        yield f"Wilkinson' {n}", *with_random_b(np.ascontiguousarray(wilkinson(n).T))
    for n in (60, 200):
        yield f"Foster {n}", *with_random_b(foster(n))
        yield f"Wright {n}", *with_random_b(wright(n))
    for n in (10, 30, 90):
        yield f"Kahan {n}", *with_random_b(kahan(n))
        yield f"Hilbert {n}", *with_random_b(linalg.hilbert(n))
        yield f"Vandermonde {n}", *with_random_b(np.vander(np.linspace(-1, 1, n)))
        yield f"Vandermonde of integers {n}", *with_random_b(np.vander(np.arange(1.0, n + 1)))
        yield f"Pascal {n}", *with_random_b(linalg.pascal(min(n, 29)).astype(float))


def structured_systems():
    for n in (1, 2, 7, 80):
        random = rng(n).standard_normal((n, n))
        yield f"permutation {n}", *with_random_b(np.eye(n)[rng(n).permutation(n)])
        yield f"upper triangle {n}", *with_random_b(np.triu(random) + 3 * np.eye(n))
        yield f"lower triangle of ones {n}", *with_random_b(np.tril(np.ones((n, n))))
        yield f"random upper triangle {n}", *with_random_b(np.triu(random))
        yield f"rank-one update {n}", *with_random_b(np.eye(n) - np.ones((n, n)) / (n + 1))
        yield f"large rank-one update {n}", *with_random_b(np.eye(n) + 1e12 * np.ones((n, n)))
        signs = np.where(rng(n).random((n, n)) < 0.5, -1.0, 1.0)
        yield f"signs {n}", *with_random_b(signs + (n + 1) * np.eye(n))
        integers = rng(n).integers(-9, 10, (n, n)).astype(float) + 50 * np.eye(n)
        yield f"integers {n}", integers, integers @ np.arange(1.0, n + 1)
        yield f"diagonal {n}", *with_random_b(np.diag(np.logspace(0, 15, n)))
        yield f"negative definite {n}", *with_random_b(-random @ random.T - np.eye(n))
        indefinite = random + random.T
        indefinite[np.diag_indices(n)] = 0.1
        yield f"indefinite with positive diagonal {n}", *with_random_b(indefinite)
    for kappa in (1e8, 1e10, 1e14):
        yield f"SPD {kappa:.0e}", *with_random_b(spd(70, kappa))


def scaled_systems(n=40):
    """Rows, columns or both over the range of float64, and right-hand sides of all sizes."""
    base = rng(5).standard_normal((n, n)) + 4 * np.eye(n)
    for width in (20, 100, 200):
        rows, columns = 10.0 ** rng(width).uniform(-width, width, (2, n))
        yield f"rows 1e+-{width}", *with_random_b(rows[:, None] * base)
        yield f"rows 1e+-{width}, b too", rows[:, None] * base, rows * rng(0).random(n)
        yield f"columns 1e+-{width}", *with_random_b(base * columns)
        half = np.sqrt(rows)[:, None] * base * np.sqrt(columns)
        yield f"both 1e+-{width}", *with_random_b(half)
        entries = base * 10.0 ** rng(1).uniform(-width, width, (n, n))
        yield f"entries 1e+-{width}", *with_random_b(entries)
        grades = np.logspace(0, -width, n)
        yield f"graded down {width}", *with_random_b(grades[:, None] * base * grades)
        yield f"graded up {width}", *with_random_b((grades[:, None] * base * grades)[::-1, ::-1])
        yield f"graded SPD {width}", *with_random_b(grades[:, None] * spd(n, 10) * grades)
    for size in (1e-320, 1e-310, 1e-300, 1e-160, 1e-40, 1e-13, 1e13, 1e38, 1e40, 1e160, 1e300):
        yield f"A of size {size:.0e}", size * base, rng(1).random(n)
        yield f"A and b of size {size:.0e}", size * base, size * rng(1).random(n)
        yield f"b of size {size:.0e}", base, size * rng(1).random(n)
        spread = base.copy()
        spread[3, 7] = size
        yield f"one entry of size {size:.0e}", *with_random_b(spread)
        spread = rng(1).random(n)
        spread[5] = size
        yield f"one entry of b of size {size:.0e}", base, spread
    top = np.finfo(float).max
    yield "largest numbers", np.where(base > 0, top, -top) * np.eye(n), rng(1).random(n)
    yield "dense largest numbers", top * np.where(base > 0, 1.0, -1.0), np.full(n, top)
    yield "fp32 overflow in products", 1e25 * base, 1e25 * rng(1).random(n)
    yield "subnormals among others", np.where(abs(base) < 0.5, 5e-324, base), rng(1).random(n)
    yield "all subnormal", np.round(100 * base) * 5e-324, np.full(n, 1e-320)
    yield "zero b", base, np.zeros(n)
    columns = np.column_stack([np.zeros(n), 1e300 * rng(1).random(n), 1e-300 * rng(2).random(n)])
    yield "columns of all sizes", base, columns


def near_singular_systems():
    for n in (2, 5, 40):
        base = rng(n).standard_normal((n, n))
        for gap in (1e-6, 1e-12, 1e-15, 1e-17):
            A = base.copy()
            A[-1] = A[0] + gap * A[-1]
            yield f"rows {gap:.0e} apart, n = {n}", *with_random_b(A)
            yield f"rows {gap:.0e} apart, n = {n}, consistent", A, A @ np.ones(n)
            A = base.copy()
            A[:, -1] = A[:, 0] * (1 + gap)
            yield f"columns {gap:.0e} apart, n = {n}", *with_random_b(A)


def singular_systems():
    n = 30
    base = rng(8).standard_normal((n, n))
    yield "zero", np.zeros((n, n)), np.ones(n)
    yield "ones", np.ones((n, n)), np.arange(n) + 1.0
    yield "zero row", np.where(np.arange(n)[:, None] == 3, 0.0, base), np.ones(n)
    yield "zero column", np.where(np.arange(n) == 3, 0.0, base), np.ones(n)
    yield "rank one", np.outer(np.arange(n), np.arange(n) + 1.0), np.ones(n)
    yield "integers 1 to 9", np.arange(1.0, 10).reshape(3, 3), np.array([1.0, 0.0, 0.0])
    yield "one row", np.array([[1.0, 1, 1], [0, 0, 0], [0, 0, 0]]), np.ones(3)
    yield "graph Laplacian", n * np.eye(n) - np.ones((n, n)), np.arange(n) + 1.0


def with_random_b(A):
    return A, rng(A.shape[0]).random(A.shape[0]) + 0.5


def wilkinson(n):
    """U grows to 2**(n - 1) (Wilkinson 1961)."""
    A = np.eye(n) - np.tril(np.ones((n, n)), -1)
    A[:, -1] = 1
    return A


def foster(n, k=1.0, c=1.0, h=0.6):
    """A Volterra integral equation by quadrature, with growth (Foster 1994)."""
    A = np.eye(n) - k * h * np.tril(np.ones((n, n)), -1)
    A[1:, 0] = -k * h / 2
    A[np.diag_indices(n)] = 1 - k * h / 2
    A[0, 0] = 1
    A[:, -1] = -1 / c
    A[-1, -1] = 1 - 1 / c - k * h / 2
    return A


def wright(n, step=0.3):
    """A two-point boundary value problem by multiple shooting, with growth (Wright 1993)."""
    m = n // 2
    block = linalg.expm(step * np.array([[-1 / 6, 1.0], [1.0, -1 / 6]]))
    A = np.eye(2 * m)
    A[:2, -2:] = np.eye(2)
    for i in range(1, m):
        A[2 * i : 2 * i + 2, 2 * i - 2 : 2 * i] = -block
    return A


def kahan(n, angle=1.2):
    s, c = np.sin(angle), np.cos(angle)
    return s ** np.arange(n)[:, None] * (np.eye(n) - c * np.triu(np.ones((n, n)), 1))


def spd(n, kappa):
    Q, _ = np.linalg.qr(rng(n).standard_normal((n, n)))
    A = (Q * np.logspace(0, -np.log10(kappa), n)) @ Q.T
    return (A + A.T) / 2


def arrow(n):
    """Row and column 0 are full: eliminated first they fill everything, eliminated last nothing."""
    A = sparse.lil_array((n, n))
    A[0, :] = A[:, 0] = 1.0
    A.setdiag(2.0 * n)
    return sparse.csr_array(A)


SPARSE_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def as_sparse(A, fmt="csr", array=True):
    kind = "array" if array else "matrix"
    return getattr(sparse, f"{fmt}_{kind}")(A)
