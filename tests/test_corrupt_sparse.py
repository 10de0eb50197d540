"""Sparse matrices whose indices lead outside of them are refused before anything reads them."""

import itertools

import numpy as np
import pytest
from scipy import sparse

import roundwise as rw
from roundwise._csr import canonical_csr, read_sparse

N = 40


def sound(n=N, dtype=np.float64, index=np.int32):
    A = sparse.csr_array(sparse.diags_array([-1.0, 4.0, -1.5], offsets=[-1, 0, 1], shape=(n, n)))
    A = A.astype(dtype)
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    return A


def index_too_large(A):
    A.indices[5] = 10**6


def index_negative(A):
    A.indices[5] = -(10**6)


def indptr_decreases(A):
    A.indptr[3] = A.indptr[1]
    A.indptr[2] = A.nnz - 1


def indptr_negative(A):
    A.indptr[1] = -(10**6)


def indptr_past_the_end(A):
    A.indptr[-1] = 10**7


def indptr_starts_late(A):
    A.indptr[0] = 1


def indptr_too_short(A):
    A.indptr = A.indptr[:-1].copy()


def indptr_empty(A):
    A.indptr = A.indptr[:0].copy()


def data_too_short(A):
    A.data = A.data[:-3].copy()


def indices_of_float(A):
    A.indices = A.indices.astype(np.float64)


DAMAGES = (
    *(index_too_large, index_negative, indptr_decreases, indptr_negative, indptr_past_the_end),
    *(indptr_starts_late, indptr_too_short, indptr_empty, data_too_short, indices_of_float),
)
FORMATS = ("csr", "csc", "bsr")
CALLS = {
    "solve": lambda A, b: rw.solve(A, b),
    "full_output": lambda A, b: rw.solve(A, b, full_output=True),
    "forward": lambda A, b: rw.solve(A, b, accuracy="forward"),
    "named": lambda A, b: rw.solve(A, b, assume_a="sym"),
    "transposed": lambda A, b: rw.solve(A, b, transposed=True),
    "factor": lambda A, b: rw.factor(A).solve(b),
    "refactor": lambda A, b: rw.factor(sound()).refactor(A).solve(b),
    "real after complex": lambda A, b: rw.factor(sound(dtype=complex)).refactor(A).solve(b),
    "Solver": lambda A, b: rw.Solver().solve(A, b),
    "lstsq": lambda A, b: rw.lstsq(A, b),
    "LinearSystem": lambda A, b: rw.LinearSystem(A, b),
    "LeastSquares": lambda A, b: rw.problems.LeastSquares(A, b),
    "native": lambda A, b: rw.backends.get_backend("native").matrix(A, "fp32"),
    "emulated": lambda A, b: rw.backends.get_backend("operation").matrix(A, "fp32"),
    "right-hand sides": lambda A, b: rw.solve(np.eye(N), A),
    "sparse right-hand sides": lambda A, b: rw.solve(sound(), A),
    "lstsq for columns": lambda A, b: rw.lstsq(np.eye(N), A),
}


@pytest.mark.parametrize(("call", "damage"), list(itertools.product(CALLS, DAMAGES)))
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("lies", [False, True])
def test_indices_out_of_range_are_refused(call, damage, format, lies):
    A = sound().asformat(format)
    damage(A)
    if lies and format != "bsr":
        A.has_canonical_format = True
    with pytest.raises(ValueError, match=r"index outside|no integers"):
        CALLS[call](A, np.ones(N))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_in_other_types(dtype, damage):
    A = sound(dtype=dtype, index=np.int64)
    damage(A)
    for call in ("solve", "full_output", "factor", "right-hand sides"):
        with pytest.raises(ValueError, match=r"index outside|no integers"):
            CALLS[call](A, np.ones(N, dtype))


@pytest.mark.parametrize("place", [10**6, -1, -(10**6)])
def test_coordinates_out_of_range(place):
    A = sound().tocoo()
    A.row[3] = place
    for call in ("solve", "factor", "LinearSystem", "right-hand sides"):
        with pytest.raises(ValueError, match="index outside"):
            CALLS[call](A, np.ones(N))


def test_a_list_of_lists_out_of_range():
    A = sound().tolil()
    A.rows[3] = [10**6, *A.rows[3][1:]]
    with pytest.raises(ValueError, match="index outside"):
        rw.solve(A, np.ones(N))


@pytest.mark.parametrize("offset", [10**6, -(2**31)])
def test_diagonals_out_of_range(offset):
    A = sound().todia()
    A.offsets[0] = offset
    with pytest.raises(ValueError, match="index outside"):
        rw.solve(A, np.ones(N))
    A = sound().todia()
    A.data = A.data[:1]
    with pytest.raises(ValueError, match="index outside"):
        rw.solve(A, np.ones(N))


def test_lists_of_unequal_length():
    A = sound().tolil()
    A.data[3] = [*A.data[3], *([1.0] * 10**4)]
    with pytest.raises(ValueError, match="index outside"):
        rw.solve(A, np.ones(N))


def shuffled(A):
    """The entries of each row in another order, some of them in two parts, and the flag a lie."""
    rows = A.tocoo()
    row, column = np.concatenate([rows.row, rows.row]), np.concatenate([rows.col, rows.col])
    order = np.lexsort((np.random.default_rng(0).random(len(row)), row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=N))]).astype(np.int32)
    values = np.concatenate([rows.data, rows.data])[order] / 2
    made = sparse.csr_array((values, column[order].astype(np.int32), indptr), shape=A.shape)
    made.has_canonical_format = True
    return made


@pytest.mark.parametrize("call", ["solve", "full_output", "factor", "Solver", "lstsq"])
def test_a_flag_that_lies_is_not_believed(call):
    b = np.arange(1.0, N + 1)
    found = CALLS[call](shuffled(sound()), b)
    x = found.x if hasattr(found, "x") else found
    np.testing.assert_allclose(sound() @ x, b, rtol=1e-12)


def test_canonical_rows():
    A, b = sound(), np.ones(N)
    for given in (A, A.tocsc(), A.tocoo(), shuffled(A)):
        for found, expected in zip(
            read_sparse(given, "A").rows, (A.indptr, A.indices, A.data), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
    assert np.shares_memory(canonical_csr(A).data, A.data)
    assert (canonical_csr(shuffled(A)) != A).nnz == 0
    longer = A.copy()
    longer.data, longer.indices = np.append(A.data, 7.0), np.append(A.indices, np.int32(9**6))
    assert canonical_csr(longer).data.size == A.nnz  # what is past the end is no entry
    np.testing.assert_allclose(A @ rw.solve(longer, b), b)
    strided = A.copy()
    strided.indices = np.repeat(A.indices, 2)[::2]
    np.testing.assert_allclose(A @ rw.solve(strided, b), b)
