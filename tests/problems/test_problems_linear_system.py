"""`LinearSystem`: validation, canonical form, fingerprint."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundwise.problems import LinearSystem

A_DENSE = np.array([[4.0, 0.0, 1.0], [0.0, 3.0, -2.0], [5.0, 0.0, 2.0]])
B = np.array([1.0, 2.0, 3.0])
SPARSE_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def test_dense_input_becomes_c_ordered_float64_copy():
    A = np.asfortranarray(A_DENSE)
    problem = LinearSystem(A, B)
    assert problem.A.dtype == np.float64
    assert problem.A.flags.c_contiguous
    assert not np.shares_memory(problem.A, A)
    assert (problem.n, problem.is_sparse, problem.density) == (3, False, 6 / 9)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float16, np.float32, np.bool_])
def test_exact_conversion_of_lower_dtypes(dtype):
    A = np.eye(3, dtype=dtype)
    for stored in (A, sp.csr_array(A.astype(np.float32) if dtype == np.float16 else A)):
        problem = LinearSystem(stored, [1, 2, 3], x_true=[1, 2, 3])
        assert problem.A.dtype == problem.b.dtype == problem.x_true.dtype == np.float64
        np.testing.assert_array_equal(problem.A @ problem.x_true, problem.b)


@pytest.mark.parametrize("make", [sp.coo_array, sp.coo_matrix])
def test_sparse_input_is_canonical(make):
    rows, columns = [1, 0, 1, 1, 0], [2, 1, 0, 2, 0]
    A = make(([1.0, 2.0, 3.0, 4.0, 0.0], (rows, columns)), shape=(3, 3))
    problem = LinearSystem(A, B)
    assert isinstance(problem.A, sp.csr_array)
    assert problem.A.has_canonical_format
    assert problem.A.indices.dtype == problem.A.indptr.dtype == np.int32
    # entry (1, 2) is 1 + 4; the explicit zero at (0, 0) is gone
    np.testing.assert_array_equal(problem.A.data, [2, 3, 5])
    np.testing.assert_array_equal(problem.A.indices, [1, 0, 2])
    np.testing.assert_array_equal(problem.A.indptr, [0, 1, 3, 3])
    assert problem.density == 3 / 9


def test_data_are_read_only_and_detached_from_the_input():
    A, b, meta = A_DENSE.copy(), B.copy(), {"a": 1}
    dense, sparse = LinearSystem(A, b, B, meta=meta), LinearSystem(sp.csr_array(A), b, B)
    before = dense.fingerprint, sparse.fingerprint
    for array in (dense.A, dense.b, dense.x_true, sparse.A.data, sparse.A.indices, sparse.A.indptr):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
    A[0, 0], b[0], meta["a"] = 9.0, 9.0, 2
    assert dense.A[0, 0] == 4.0
    assert dense.b[0] == 1.0
    assert dense.meta == {"a": 1}
    again = LinearSystem(dense.A, dense.b, B), LinearSystem(sparse.A, sparse.b, B)
    assert tuple(problem.fingerprint for problem in again) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        dense.name = "other"


@pytest.mark.parametrize("store", [np.asfortranarray, sp.csr_array, sp.coo_matrix])
def test_from_solution_multiplies_with_the_stored_matrix(store):
    rng = np.random.default_rng(0)
    A, x_true = rng.standard_normal((30, 30)), rng.standard_normal(30)
    problem = LinearSystem.from_solution(store(A), x_true, name="known", meta={"a": 1})
    np.testing.assert_array_equal(problem.x_true, x_true)
    np.testing.assert_array_equal(problem.b, problem.A @ problem.x_true)
    np.testing.assert_allclose(problem.b, A @ x_true, rtol=0, atol=1e-13)
    assert (problem.name, problem.meta) == ("known", {"a": 1})
    with pytest.raises(ValueError, match="x_true has 2 rows, A has 30"):
        LinearSystem.from_solution(store(A), np.ones(2))


@pytest.mark.parametrize(
    ("A", "b", "x_true", "error", "message"),
    [
        (np.eye(4), np.ones(3), None, ValueError, "b has 3 rows, A has 4; pass b with 4 rows"),
        (np.eye(4), np.ones(4), np.ones(5), ValueError, "x_true has 5 rows, A has 4"),
        (np.eye(4), np.ones((4, 1)), None, ValueError, r"b\.ravel\(\)"),
        (np.eye(4), np.ones((4, 2)), None, ValueError, "one vector with 4 entries"),
        (np.eye(4), 1.0, None, ValueError, "one vector with 4 entries"),
        (np.eye(4), sp.csr_array(np.ones((4, 1))), None, TypeError, r"toarray\(\)\.ravel"),
        (np.ones((3, 4)), np.ones(3), None, ValueError, "pass a square matrix"),
        (np.ones(3), np.ones(3), None, ValueError, "pass a matrix"),
        (sp.csr_array((3, 4)), np.ones(3), None, ValueError, "pass a square matrix"),
        (np.ones((0, 0)), np.ones(0), None, ValueError, "at least one unknown"),
        (np.eye(2) * 1j, np.ones(2), None, TypeError, "A is complex"),
        (sp.csr_array(np.eye(2) * 1j), np.ones(2), None, TypeError, "A is complex"),
        (np.eye(2), np.ones(2) * 1j, None, TypeError, "b is complex"),
        (np.eye(2).astype(object), np.ones(2), None, TypeError, "A has dtype object"),
        ([["1", "0"], ["0", "1"]], np.ones(2), None, TypeError, "A has dtype <U1"),
        (np.eye(2), np.array([None, 1.0]), None, TypeError, "b has dtype object"),
        (np.array([[1, np.nan], [0, 1]]), np.ones(2), None, ValueError, "A has 1 NaN or inf"),
        (sp.diags_array([np.inf, 1.0]), np.ones(2), None, ValueError, "A has 1 NaN or inf"),
        (np.eye(2), [np.inf, np.nan], None, ValueError, "b has 2 NaN or inf"),
        (np.eye(2), np.ones(2), [0, -np.inf], ValueError, "x_true has 1 NaN or inf"),
    ],
)
def test_bad_input_gets_one_line_with_the_remedy(A, b, x_true, error, message):
    with pytest.raises(error, match=message) as caught:
        LinearSystem(A, b, x_true)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant == 52, reason="long double is float64 here")
def test_extended_precision_is_not_rounded_silently():
    with pytest.raises(TypeError, match=r"astype\(numpy\.float64\)"):
        LinearSystem(np.eye(2, dtype=np.longdouble), np.ones(2))


def test_duplicates_whose_sum_overflows_are_refused():
    A = sp.coo_array(([1e308, 1e308], ([0, 0], [0, 0])), shape=(1, 1))
    with pytest.raises(ValueError, match="A has 1 NaN or inf"):
        LinearSystem(A, [1.0])


def test_one_unknown_zero_matrix_and_zero_right_hand_side_are_problems():
    assert LinearSystem([[0.0]], [0.0]).n == 1
    assert LinearSystem(sp.csr_array((5, 5)), np.zeros(5)).density == 0.0


def test_repr():
    assert repr(LinearSystem(A_DENSE, B)) == "LinearSystem(dense 3 x 3)"
    named = LinearSystem(sp.csr_array(A_DENSE), B, B, name="tiny")
    assert repr(named) == "LinearSystem('tiny', sparse 3 x 3, density 66.7 %, x_true known)"


def test_pickle_keeps_the_content():
    for A in (A_DENSE, sp.csr_array(A_DENSE)):
        problem = LinearSystem(A, B, name="p", meta={"k": [1, 2]})
        copy = pickle.loads(pickle.dumps(problem))
        assert (copy.fingerprint, copy.name, copy.meta) == (problem.fingerprint, "p", {"k": [1, 2]})


matrices = hnp.arrays(
    np.float64,
    st.integers(1, 6).map(lambda n: (n, n)),
    elements=st.floats(-1e3, 1e3) | st.sampled_from([0.0, 0.0, 1.0]),
)


@settings(max_examples=50, deadline=None)
@given(matrices)
def test_fingerprint_ignores_storage(A):
    b = A[:, 0]
    dense = LinearSystem(A, b).fingerprint
    strided = np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3]
    for same in (np.asfortranarray(A), strided, A.astype(">f8"), A.tolist()):
        assert LinearSystem(same, b).fingerprint == dense
    sparse = LinearSystem(sp.csr_array(A), b).fingerprint
    assert sparse != dense
    for name in SPARSE_FORMATS:
        assert LinearSystem(sp.csr_array(A).asformat(name), b).fingerprint == sparse
        assert LinearSystem(sp.csr_matrix(A).asformat(name), b).fingerprint == sparse
    wide = sp.csr_array(A)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert LinearSystem(wide, b).fingerprint == sparse


@settings(max_examples=50, deadline=None)
@given(matrices, st.data())
def test_fingerprint_sees_every_entry(A, data):
    n = A.shape[0]
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    b = np.ones(n)
    changed, moved = A.copy(), b.copy()
    changed[i, j] = np.nextafter(A[i, j], np.inf)
    moved[i] = np.nextafter(1.0, 2.0)
    for store in (np.array, sp.csr_array):
        prints = [
            LinearSystem(store(A), b).fingerprint,
            LinearSystem(store(changed), b).fingerprint,
            LinearSystem(store(A), moved).fingerprint,
            LinearSystem(store(A), b, b).fingerprint,
            LinearSystem(store(A), b, moved).fingerprint,
        ]
        assert len(set(prints)) == len(prints)


def test_fingerprint_ignores_name_meta_and_the_sign_of_zero():
    reference = LinearSystem(A_DENSE, B).fingerprint
    assert LinearSystem(A_DENSE, B, name="x", meta={"y": 1}).fingerprint == reference
    assert LinearSystem(np.where(A_DENSE == 0, -0.0, A_DENSE), B).fingerprint == reference
    assert len(reference) == 32


def test_fingerprint_tells_patterns_with_equal_values_apart():
    first = sp.csr_array(([1.0, 1.0], ([0, 1], [0, 1])), shape=(2, 2))
    second = sp.csr_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(2, 2))
    assert LinearSystem(first, [1, 1]).fingerprint != LinearSystem(second, [1, 1]).fingerprint


def test_fingerprint_is_the_same_in_another_process():
    code = (
        "from roundwise.problems import LinearSystem;"
        "print(LinearSystem([[4, 1], [1, 3]], [1, 2]).fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert other == LinearSystem([[4, 1], [1, 3]], [1, 2]).fingerprint


def test_a_copy_through_pickle_stays_read_only():
    system = LinearSystem(np.eye(2), [1.0, 2.0], name="p", meta={"kappa": 1.0})
    copied = pickle.loads(pickle.dumps(system))
    assert copied.fingerprint == system.fingerprint
    assert (copied.name, copied.meta) == ("p", {"kappa": 1.0})
    with pytest.raises(ValueError, match="read-only"):
        copied.A[0, 0] = 7.0
