"""Kernels compute with subnormal numbers even where the calling thread has switched them off.

A library built with -ffast-math may set flush-to-zero (FTZ) and denormals-are-zero (DAZ) in the
thread that loads it. NumPy's own arithmetic then loses subnormal numbers; the kernels' must not.
"""

import ctypes
import ctypes.util
import math
import platform
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise import _kernels
from roundwise.algorithms.least_squares.at_once import gate_of
from roundwise.rounding import kernel_format
from roundwise.solver.express import memo

# glibc's fenv_t: the index, in 32-bit words, of the control register, and the bits that switch
# subnormals off: FTZ and DAZ of MXCSR, FZ of FPCR.
REGISTERS = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.machine() not in REGISTERS,
    reason="the test knows the floating-point environment of glibc on x86-64 and ARM64",
)


@contextmanager
def subnormals_switched_off():
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before, changed = (ctypes.c_uint32 * 16)(), (ctypes.c_uint32 * 16)()
    libm.fegetenv(before)
    libm.fegetenv(changed)
    index, bits = REGISTERS[platform.machine()]
    changed[index] |= bits
    kernel_format.cache_clear()  # formats are to be made under these settings, too
    libm.fesetenv(changed)
    try:
        assert math.ldexp(1.0, -1074) == 0  # otherwise the settings have no effect
        yield
        assert math.ldexp(1.0, -1074) == 0  # a kernel leaves the caller's settings as they were
    finally:
        libm.fesetenv(before)
        kernel_format.cache_clear()


FORMATS = [rw.FP64, rw.FP32, rw.formats.TF32, rw.BF16, rw.FP16]
FORMATS.append(rw.FloatFormat("deep", 12, -1022, 1023))  # its quantum is subnormal in float64
each_format = pytest.mark.parametrize("fmt", FORMATS, ids=str)
operation = rw.backends.get_backend("operation")


def same_numbers(x, y):
    """Compares bits: with DAZ set, a comparison takes subnormal numbers for zero."""
    return bool((x.view(np.int64) == y.view(np.int64)).all())


def normal_and_eighth(fmt, n):
    """n of the least normal numbers of the format, and an eighth of each, which is subnormal."""
    significands = 8 + np.arange(n) % 8
    return np.ldexp(significands, fmt.emin - 3), np.ldexp(significands, fmt.emin - 6)


@each_format
def test_rounding(fmt, threads, simd_level):
    quarters = np.arange(-40.0, 40.0)  # of the quantum: numbers, ties and what lies between
    exponent = fmt.emin - fmt.p + (1 if fmt.p == 53 else -1)  # fp64 has nothing between
    x = np.ldexp(quarters, exponent)
    expected = np.array([rw.rounding.round_scalar(float(value), fmt) for value in x])
    x, expected = np.tile(x, 10_000), np.tile(expected, 10_000)  # enough for three threads
    for count in (1, 3):
        threads(count)
        with subnormals_switched_off():
            assert same_numbers(rw.round_to(x, fmt), expected)


@each_format
def test_emulated_operations(fmt, simd_level):
    x, expected = normal_and_eighth(fmt, 37)
    with subnormals_switched_off():
        assert same_numbers(operation.scale(0.125, x, fmt), expected)
        assert same_numbers(operation.axpy(-0.125, x, expected, fmt), np.zeros(37))
        assert same_numbers(operation.axpy(0.125, x, np.zeros(37), fmt), expected)


@each_format
@pytest.mark.parametrize("count", [1, 3])
def test_emulated_matvec(fmt, count, threads, simd_level):
    threads(count)
    diagonal, expected = normal_and_eighth(fmt, 1000)  # enough for three threads
    A, x = np.diag(diagonal), np.full(1000, 0.125)
    with subnormals_switched_off():
        assert same_numbers(operation.matrix(A, fmt).matvec(x), expected)


@pytest.mark.parametrize("count", [1, 3])
def test_native_kernels(count, simd_level):
    diagonal, expected = normal_and_eighth(rw.FP64, 1000)
    A, x, y = np.asfortranarray(np.diag(diagonal)), np.full(1000, 0.125), np.empty(1000)
    with subnormals_switched_off():
        _kernels.native_matvec(A, "fp64", x, y, False, count)
        assert same_numbers(y, expected)
        assert _kernels.native_axpy(-0.125, diagonal, y)
        assert same_numbers(y, np.zeros(1000))


# Whole solves: NumPy and LAPACK compute between the kernels

SMALL = {"subnormal": 1e-310, "partly subnormal": 1e-306}
SOLVES = {
    "solve": lambda A, b: rw.solve(A, b),
    "full_output": lambda A, b: rw.solve(A, b, full_output=True).x,
    "factor": lambda A, b: rw.factor(A).solve(b),
    "Solver": lambda A, b: rw.Solver().factor(A).solve(b),
    "lstsq": lambda A, b: rw.lstsq(A[:, :7], b),
    "stack": lambda A, b: rw.solve(A[None], b[None, :, None])[0, :, 0],
}


CASES = [(call, np.asarray) for call in SOLVES]
CASES += [
    (call, kind) for call in ("solve", "factor") for kind in (sparse.csr_array, np.complex128)
]


@pytest.mark.parametrize("size", SMALL)
@pytest.mark.parametrize(("call", "kind"), CASES)
@pytest.mark.parametrize("n", [12, 200])
def test_solves_are_those_of_a_thread_that_keeps_subnormals(call, kind, size, n):
    rng = np.random.default_rng(0)
    A, b = kind(rng.standard_normal((n, n)) * SMALL[size]), rng.standard_normal(n) * SMALL[size]
    expected = SOLVES[call](A, b)
    with subnormals_switched_off():
        x = SOLVES[call](A, b)
    np.testing.assert_array_equal(x, expected)


DIRECTIONS = {"down": 0x400, "up": 0x800, "to zero": 0xC00}


@contextmanager
def rounding(direction):
    """This thread rounds in another direction, and still does at the end."""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of the directions are those of x86-64")
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before = libm.fegetround()
    assert libm.fesetround(DIRECTIONS[direction]) == 0
    try:
        yield
        assert libm.fegetround() == DIRECTIONS[direction]
    finally:
        libm.fesetround(before)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_solve_rounds_to_nearest(direction):
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((30, 30)) * 1e200, rng.standard_normal(30)
    expected = rw.solve(A, b)
    with rounding(direction):
        x = rw.solve(A, b)
    np.testing.assert_array_equal(x, expected)


MORE_SOLVES = SOLVES | {
    "refactor": lambda A, b: rw.factor(A + A).refactor(A).solve(b),
    "transposed": lambda A, b: rw.factor(A).solve(b, trans="T"),
    "stacked factors": lambda A, b: rw.factor(A[None]).refactor(A[None]).solve(b, trans="T"),
    "Solver.solve": lambda A, b: rw.Solver().solve(A, b),
    "many columns": lambda A, b: rw.solve(A, np.column_stack([b, -b, 2 * b, b])),
    "slogdet": lambda A, b: np.array(rw.factor(A).slogdet()),
}
KINDS = {
    "float64": np.asarray,
    "integers": lambda A: (A * 2.0**60).astype(np.int64) | 1,
    "complex": lambda A: A + 1j * A.T,
    "sparse": sparse.csr_array,
    "duplicates": lambda A: sparse.coo_array(
        (np.concatenate([A.ravel() / 3] * 3), np.tile(np.indices(A.shape).reshape(2, -1), 3)),
        A.shape,
    ),
}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", MORE_SOLVES)
def test_every_call_rounds_to_nearest(call, kind, direction):
    """Conversions, norms, scaling, sums of duplicates and what the memo keeps, too."""
    rng = np.random.default_rng(3)
    if (call, kind) in (("lstsq", "complex"), ("lstsq", "duplicates")) or (
        call in ("stack", "stacked factors") and kind in ("sparse", "duplicates")
    ):
        pytest.skip("there is no such call")
    for n in (9, 90):
        A, b = KINDS[kind](rng.standard_normal((n, n))), rng.standard_normal(n)
        memo.clear()
        expected = MORE_SOLVES[call](A, b)
        memo.clear()
        with rounding(direction):
            x = MORE_SOLVES[call](A, b)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("n", [9, 100, 250])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_memo_has_the_gate_of_a_thread_that_rounds_to_nearest(direction, n):
    A, b = np.eye(n), np.ones(n)
    known = []
    for direct in (nullcontext, lambda: rounding(direction)):
        memo.clear()
        with direct():
            rw.solve(A, b)
        known.append(dict(memo))
    assert known[0] == known[1]


@pytest.mark.parametrize("n", [3, 10, 101])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_so_have_the_gates_that_least_squares_and_sparse_factors_keep(direction, n):
    """Of a complex b, whose share of the tolerance is rounded."""
    A, b, F = np.eye(n + 2, n), np.ones(n + 2), rw.factor(sparse.eye_array(n, format="csr"))
    known = []
    for direct in (nullcontext, lambda: rounding(direction)):
        memo.clear()
        gate_of.cache_clear()
        with direct():
            rw.lstsq(A, b)
            F.solve(b[:n] * 1j)
        tall, square = memo.values()
        known.append((tall.rungs, square))
    assert known[0] == known[1]


@pytest.mark.parametrize("n", [30, 300])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_bounds_are_computed_with_numbers_rounded_to_nearest(direction, n):
    rng = np.random.default_rng(2)
    A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    expected, solution = (rw.solve(A, b, full_output=True) for _ in range(2))
    with rounding(direction):
        known = solution.forward_error_bound, solution.condition
    assert known == (expected.forward_error_bound, expected.condition)
