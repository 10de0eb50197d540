"""One compiled call for a small system: every type, memory order and scale, through the gate."""

import itertools
import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rational
from express_calls import express
from scipy import sparse

import roundwise as rw
from roundwise import _kernels
from roundwise.solver import express as module
from roundwise.solver.express import ExpressAnswer, gate_of

TYPES = [np.float64, np.float32, np.complex128, np.complex64]
ORDERS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=-1)[::2, ::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "unaligned": lambda x: unaligned(x),
    "read-only": lambda x: read_only(x),
}


def unaligned(x):
    raw = np.empty(x.nbytes + 1, dtype=np.uint8)
    array = raw[1:].view(x.dtype).reshape(x.shape)
    array[...] = x
    return array


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def drawn(rng, shape, dtype):
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 17, 33])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(TYPES, TYPES)))
def test_every_type_passes_the_gate(first, second, n):
    rng = np.random.default_rng(n)
    A, b = drawn(rng, (n, n), first), drawn(rng, n, second)
    found = express(A, b)
    assert isinstance(found, ExpressAnswer)
    x = found.x
    assert x.dtype == np.linalg.solve(A, b).dtype
    single = np.finfo(x.dtype).bits == 32
    tolerance = math.sqrt(n) * 2.0 ** (-24 if single else -53)
    assert found.tolerance == tolerance
    assert found.backward_error <= tolerance * (1 + 1e-15)
    assert 0 < found.pivot_ratio <= 1
    assert rational.passes_gate(A, x, b, found.backward_error)
    assert np.array_equal(rw.solve(A, b), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 4, 11, 40])
def test_bits_do_not_depend_on_memory_order(dtype, n):
    rng = np.random.default_rng(n)
    A, B = drawn(rng, (n, n), dtype), drawn(rng, (n, 3), dtype)
    x = rw.solve(A, B)
    for form, other in itertools.product(ORDERS.values(), ORDERS.values()):
        found = express(form(A), other(B))
        assert np.array_equal(found.x, x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 16, 40])
def test_columns_do_not_know_of_one_another(dtype, k):
    rng = np.random.default_rng(k)
    A, B = drawn(rng, (20, 20), dtype), drawn(rng, (20, k), dtype)
    X = rw.solve(A, B)
    assert X.shape == B.shape
    for c in range(k):
        assert np.array_equal(X[:, c], rw.solve(A, B[:, c]))


def test_levels_with_fused_multiply_adds_give_the_same_bits():
    rng = np.random.default_rng(0)
    answers, best = {}, rw.machine.threads.get_simd_level()
    try:
        for level in rw.machine.threads.simd_levels():
            rw.machine.threads.set_simd_level(level)
            rng = np.random.default_rng(0)
            answers[level] = []
            for dtype, n in itertools.product(TYPES, (1, 6, 29, 100)):
                A, B = drawn(rng, (n, n), dtype), drawn(rng, (n, 2), dtype)
                found = express(A, B)
                assert isinstance(found, ExpressAnswer)
                answers[level].append(found.x)
    finally:
        rw.machine.threads.set_simd_level(best)
    for level in set(answers) - {"baseline"}:
        for x, y in zip(answers[level], answers["avx2"], strict=True):
            assert np.array_equal(x, y)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_badly_scaled_systems(dtype):
    """Rows and columns over most of the range: pivots are compared after scaling."""
    rng, solved = np.random.default_rng(1), 0
    for _ in range(60):
        n = int(rng.integers(2, 9))
        rows, columns = rng.integers(-330, 330, (n, 1)), rng.integers(-330, 330, n)
        A, b = drawn(rng, (n, n), dtype), drawn(rng, n, dtype)
        A, b = A * 2.0**rows * 2.0**columns, b * 2.0 ** rows[:, 0]
        found = express(A, b)
        if found is not None:
            solved += 1
            assert rational.passes_gate(A, found.x, b, found.backward_error)
    assert solved > 50


@pytest.mark.parametrize("power", [-300, -100, 100, 290])
@pytest.mark.parametrize("dtype", TYPES)
def test_huge_and_tiny_systems(power, dtype):
    rng = np.random.default_rng(2)
    power = power // 10 if np.finfo(dtype).bits == 32 else power
    A, b = drawn(rng, (7, 7), dtype), drawn(rng, (7, 2), dtype)
    scale = dtype(10.0**power)
    for left, right in ((scale, 1), (1, scale), (scale, scale)):
        found = express((A * left).astype(dtype), (b * right).astype(dtype))
        if found is None:  # x itself is out of range, or subnormal
            assert abs(power) > 20
            continue
        args = (A * left).astype(dtype), found.x, (b * right).astype(dtype)
        assert rational.passes_gate(*args, found.backward_error)


def test_subnormal_numbers_are_left_to_the_general_path_or_right():
    rng = np.random.default_rng(3)
    for exponent in (-1074, -1060, -1030, -1022):
        A = np.ldexp(rng.integers(1, 9, (4, 4)) + 9.0 * np.eye(4), exponent)
        b = A @ np.ones(4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rw.IllConditionedWarning)
            x = rw.solve(A, b)
        assert rational.passes_gate(A, x, b, 2 * 2.0**-53)


def test_random_systems_pass_exactly():
    """What is reported is an upper bound of the exact backward error; columns of zeros too."""
    rng, solved = np.random.default_rng(4), 0
    for _ in range(200):
        n, k = int(rng.integers(1, 13)), int(rng.integers(1, 4))
        A = rng.integers(-9, 10, (n, n)) * 10.0 ** rng.integers(-9, 9, (n, n))
        b = rng.standard_normal((n, k)) * (rng.random(k) < 0.8)
        found = express(A, b)
        if found is not None:
            solved += 1
            assert rational.passes_gate(A, found.x, b, found.backward_error)
    assert solved > 80


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_refused(dtype):
    A, b = np.eye(3, dtype=dtype), np.ones(3, dtype=dtype)
    for bad in (np.nan, np.inf, -np.inf):
        for place in ((0, 0), (2, 1)):
            wrong = A.copy()
            wrong[place] = bad
            assert express(wrong, b) is None
            with pytest.raises(ValueError, match="A has NaN or infinite"):
                rw.solve(wrong, b)
        wrong = b.copy()
        wrong[1] = bad
        assert express(A, wrong) is None
        with pytest.raises(ValueError, match="b has NaN or infinite"):
            rw.solve(A, wrong)
    for singular in (np.zeros((3, 3)), np.ones((3, 3)), np.diag([1, 0, 2])):
        assert express(singular.astype(dtype), b) is None
        with pytest.raises(rw.SolveFailed, match="A is singular"):
            rw.solve(singular.astype(dtype), b)
    hilbert = 1 / (1.0 + np.add.outer(np.arange(12), np.arange(12)))
    assert express(hilbert, np.ones(12)) is None
    assert express(A, b, 1e-30) is None


def test_odd_input_gives_none_and_no_error():
    A, b = np.eye(3), np.ones(3)
    for odd in (
        (np.empty((0, 0)), np.empty(0)),
        (A, np.empty((3, 0))),
        (A, np.ones(4)),
        (A, np.ones((3, 1, 1))),
        (A, np.array(1.0)),
        (A[:2], b),
        (A[None], b),
        ([[1.0]], [1.0]),
        (np.ma.masked_array(A), b),
        (A.astype(object), b),
        (A.astype(np.longdouble), b),
        (A.astype("U8"), b),
        (A, b.astype("M8[s]")),
    ):
        assert express(*odd) is None


def test_other_types_are_converted():
    rng = np.random.default_rng(5)
    A, b = rng.integers(-5, 6, (6, 6)) + 20 * np.eye(6, dtype=int), rng.integers(-5, 6, 6)
    expected = rw.solve(A.astype(float), b.astype(float))
    for dtype in (np.int8, np.int64, np.float16, ">f8", ">i4"):
        found = express(A.astype(dtype), b.astype(dtype))
        assert np.array_equal(found.x, expected)
        assert found.x.dtype == np.float64
    assert express(A.astype(">f4"), b.astype(">f4")).x.dtype == np.float32
    assert express(A.astype(">c8"), b.astype(float)).x.dtype == np.complex128


def test_given_arrays_stay_as_they_are():
    rng = np.random.default_rng(6)
    for scale in (1.0, 1e200):
        A, b = scale * rng.standard_normal((9, 9)), rng.standard_normal((9, 2))
        before = A.copy(), b.copy()
        assert express(A, b) is not None
        assert np.array_equal(A, before[0])
        assert np.array_equal(b, before[1])


@pytest.mark.parametrize("tol", [1e-16, 1e-15, 1e-8, 1e-2])
@pytest.mark.parametrize("dtype", TYPES)
def test_tolerances_hold(tol, dtype):
    rng = np.random.default_rng(7)
    for n in (1, 6, 30):
        A, b = drawn(rng, (n, n), dtype), drawn(rng, n, dtype)
        found = express(A, b, tol)
        if found is not None:
            assert found.tolerance == tol
            assert rational.passes_gate(A, found.x, b, min(tol, found.backward_error * (1 + 1e-15)))
        else:
            assert tol <= (1e-8 if np.finfo(dtype).bits == 32 else 1e-16)  # finer than the type


def test_a_block_of_products_leaves_room_in_the_tolerance():
    for n, is_complex in itertools.product((1, 5, 20, 60, 200, 500), (False, True)):
        for u in (2.0**-53, 2.0**-24):
            gate = gate_of(n, is_complex, math.sqrt(n) * u)
            assert gate.exact_error <= gate.block_error < 0.7 * gate.tolerance
            assert gate.block == 0 or gate.block >= 2


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [3, 80])
def test_full_output_has_the_same_answer(dtype, n):
    rng = np.random.default_rng(8)
    A, b = drawn(rng, (n, n), dtype), drawn(rng, (n, 2), dtype)
    solution = rw.solve(A, b, full_output=True)
    assert np.array_equal(solution.x, rw.solve(A, b))
    assert (solution.status, solution.action) == ("accepted", "lu:fp64-fp64-fp64-fp64")
    assert solution.backward_error <= solution.tolerance * (1 + 1e-15)
    assert solution.digits >= (3 if np.finfo(dtype).bits == 32 else 10)
    assert "Verified: x solves exactly" in solution.explain()
    changed = rw.solve(A, b, full_output=True)
    A[0, 0] += 1
    with pytest.raises(ValueError, match="has changed"):
        changed.condition  # noqa: B018


def test_python_threads_share_nothing():
    rng = np.random.default_rng(9)
    systems = [
        (drawn(rng, (n, n), dtype), drawn(rng, (n, 2), dtype))
        for n, dtype in itertools.product((3, 20, 70), TYPES)
    ]
    expected = [rw.solve(*system) for system in systems]

    def work(_):
        return all(
            np.array_equal(rw.solve(*system), x)
            for _ in range(20)
            for system, x in zip(systems, expected, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize(("first", "second"), list(itertools.product(TYPES, TYPES)))
def test_a_stack_is_a_loop_over_the_same_kernel(first, second):
    rng = np.random.default_rng(10)
    A, B = drawn(rng, (6, 7, 7), first), drawn(rng, (6, 7, 2), second)
    A[3] *= A.dtype.type(1e-30)  # scaled, where squares of complex numbers would vanish
    A[4, :, 2] = A[4, :, 1]  # singular in the first attempt: general path
    A[4, 0, 0] += 1
    A[4, 3, 2] += 1
    X = rw.solve(A, B)
    for i in range(6):
        assert np.array_equal(X[i], rw.solve(A[i], B[i]))


def test_the_memo_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MOST_KNOWN", 5)
    module.memo.clear()
    for n in range(1, 20):
        assert express(np.eye(n), np.ones(n)) is not None
        assert len(module.memo) <= 5


def test_the_kernel_refuses_what_would_leave_its_arrays():
    A, b, x = np.eye(3), np.ones((3, 2)), np.empty((3, 2))
    gate = gate_of(3, False, 1e-15)
    for bad in (
        (A[:2], b, x),
        (A, b[:2], x),
        (A, b, x[:2]),
        (A, b, x[:, :1].copy()),
        (A, b, np.empty(3)),
        (A, b, x.astype(np.float32)),
        (A, b, x.astype(complex)),
        (A.astype(int), b, x),
        (A[None], b, x),
    ):
        with pytest.raises(ValueError, match="pass"):
            _kernels.express_solve(*bad, False, "fp64", *gate, False)
    with pytest.raises((ValueError, BufferError)):
        _kernels.express_solve(A, b, np.asfortranarray(x), False, "fp64", *gate, False)
    with pytest.raises(ValueError, match="another format"):
        _kernels.express_solve(A, b, x, False, "fp8", *gate, False)
    with pytest.raises(ValueError, match="block is negative"):
        _kernels.express_solve(A, b, x, False, "fp64", *gate[:-1], -1, False)


@pytest.mark.filterwarnings("ignore::roundwise.IllConditionedWarning")
def test_what_is_refused_is_the_first_attempt():
    hilbert = 1.0 / np.add.outer(np.arange(12), np.arange(1, 13))
    for M, method in ((hilbert, "lu"), (sparse.csr_array(hilbert), "lu")):
        solution = rw.solve(M, np.ones(12), full_output=True)
        first, *rest = solution.attempts
        assert (first.converged, first.nbe, first.x) == (False, np.inf, None)
        assert rw.Action.parse(first.action).method == method
        assert rest[-1].converged
        assert solution.status == "escalated"
        assert first.reason in solution.explain()
        assert np.array_equal(solution.x, rw.solve(M, np.ones(12)))
    with pytest.raises(rw.SolveFailed, match="singular") as caught:
        rw.solve(np.ones((5, 5)), np.arange(5.0))
    assert len(caught.value.attempts) == 2
