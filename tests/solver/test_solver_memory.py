"""How much memory a solve takes beside A: NumPy's allocations are exact, so these are, too."""

import tracemalloc

import numpy as np
import pytest

import roundwise as rw

N = 500
RNG = np.random.default_rng(11)
A, B = RNG.standard_normal((N, N)), RNG.standard_normal(N)
LARGE = RNG.standard_normal((2 * N, 2 * N))
POWERS = np.exp2(RNG.integers(-150, 150, N))
SLACK = 0.2
"""Vectors, and blocks of rows that are worked on at a time, in copies of A."""

FACTORS = {"fp32": 0.5, "fp64": 1.0}  # in copies of A in float64

AS_IT_IS = {"C": A, "Fortran": np.asfortranarray(A)}
COPIED_ONCE = {
    "1e60": A * 1e60,
    "1e200": A * 1e200,
    "1e-250": A * 1e-250,
    "Fortran, 1e60": np.asfortranarray(A * 1e60),
    "rows": POWERS[:, None] * A,
    "rows and columns": POWERS[:, None] * A * POWERS[::-1],
    "strided": LARGE[::2, ::2],
    "transposed, strided": LARGE.T[::2, ::2],
    "reversed": A[::-1],
    "a block": LARGE[:N, :N],
    "strided, 1e60": (LARGE * 1e60)[::2, ::2],
    "big-endian": A.astype(">f8"),
    "big-endian, 1e60": (A * 1e60).astype(">f8"),
    "float32": A.astype(np.float32),
    "float32, 1e30": (A * 1e30).astype(np.float32),
    "float32, strided": LARGE.astype(np.float32)[::2, ::2],
    "integers": RNG.integers(-99, 99, (N, N)),
}
READ_ONLY = A.copy()
READ_ONLY.flags.writeable = False
AS_IT_IS["read-only"] = READ_ONLY


def copies(work):
    """The peak of what ``work()`` allocates, in copies of A in float64."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return (tracemalloc.get_traced_memory()[1] - before) / (8 * N**2)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fmt", FACTORS)
@pytest.mark.parametrize("given", AS_IT_IS)
def test_beside_the_factors_nothing_is_copied(given, fmt):
    system = AS_IT_IS[given]
    rw.solve(system, B, policy=fmt)  # what is computed once, like policies, is not counted
    assert copies(lambda: rw.solve(system, B, policy=fmt)) <= FACTORS[fmt] + SLACK
    with_copy = copies(lambda: rw.factor(system, policy=fmt).solve(B))
    assert with_copy <= 1 + FACTORS[fmt] + SLACK


@pytest.mark.parametrize("fmt", FACTORS)
@pytest.mark.parametrize("given", COPIED_ONCE)
def test_scaling_and_converting_together_make_one_copy(given, fmt):
    system = COPIED_ONCE[given]
    before = system.copy()
    rw.solve(system, B, policy=fmt)
    for work in (rw.solve, lambda A, b, policy: rw.factor(A, policy=policy).solve(b)):
        assert copies(lambda work=work: work(system, B, policy=fmt)) <= 1 + FACTORS[fmt] + SLACK
    np.testing.assert_array_equal(system, before)


@pytest.mark.parametrize("given", AS_IT_IS | COPIED_ONCE)
def test_a_factorization_does_not_see_what_becomes_of_the_matrix(given):
    system = (AS_IT_IS | COPIED_ONCE)[given].copy(order="K")
    kept = system.copy(order="K")
    F = rw.factor(system)
    system[...] = 0
    np.testing.assert_array_equal(F.solve(B), rw.factor(kept).solve(B))


def test_factors_that_did_not_suffice_are_gone_before_the_next_are_made():
    U, _ = np.linalg.qr(A)
    ill = (U * np.logspace(0, -11, N)) @ U[::-1]
    solution = rw.solve(ill, B, policy="fp32", full_output=True)
    assert [one.action[:7] for one in solution.attempts] == ["lu:fp32", "lu:fp64"]
    assert copies(lambda: rw.solve(ill, B, policy="fp32")) <= FACTORS["fp64"] + SLACK
