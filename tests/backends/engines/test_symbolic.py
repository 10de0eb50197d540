"""The analysis of sparse patterns agrees with elimination on the graph, vertex by vertex."""

import importlib.util
import sys

import numpy as np
import pytest
from hard_systems import arrow
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csgraph

from roundwise import _kernels
from roundwise.backends.engines.orderings import (
    ORDERINGS,
    analyse,
    metis,
    natural,
    predicted,
    symmetric_pattern,
)
from roundwise.problems import poisson_2d
from roundwise.problems.pde import laplace_3d

amd, nd = ORDERINGS["amd"], ORDERINGS["nd"]
HAS_METIS = importlib.util.find_spec("pymetis") is not None
needs_metis = pytest.mark.skipif(not HAS_METIS, reason="pymetis is not installed")
each_ordering = pytest.mark.parametrize(
    "ordering", [pytest.param(o, marks=needs_metis) if o == "metis" else o for o in ORDERINGS]
)


def from_dense(dense):
    return sparse.csr_array(np.asarray(dense, dtype=float))


def tridiagonal(n):
    return sparse.csr_array(sparse.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)))


def with_dense_rows(n):
    """A grid, and rows that are next to all others: more than minimum degree should look at."""
    A = sparse.lil_array(poisson_2d(n).A)
    A[3] = A[n] = 1.0
    return sparse.csr_array(A)


def disconnected():
    blocks = [tridiagonal(5), arrow(6), from_dense(np.zeros((3, 3))), tridiagonal(1)]
    return sparse.csr_array(sparse.block_diag(blocks))


MATRICES = {
    "empty": sparse.csr_array((0, 0)),
    "one": from_dense([[2.0]]),
    "zero": sparse.csr_array((4, 4)),
    "full": from_dense(np.ones((7, 7))),
    "tridiagonal": tridiagonal(30),
    "arrow": arrow(40),
    "dense rows": with_dense_rows(21),
    "disconnected": disconnected(),
    "grid": poisson_2d(12).A,
    "cube": laplace_3d(5),
    "larger grid": poisson_2d(23).A,
    "unsymmetric": from_dense(np.triu(np.ones((6, 6)), 2)),
}
each_matrix = pytest.mark.parametrize("A", MATRICES.values(), ids=MATRICES)


@st.composite
def matrices(draw):
    """Random patterns from nearly empty to nearly full, some with a full row."""
    n = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = rng.random((n, n)) < draw(st.sampled_from([0.01, 0.03, 0.06, 0.15, 0.5]))
    if n and draw(st.booleans()):
        dense[rng.integers(n)] = True
    return from_dense(dense)


def eliminated(A, order):
    """The pattern of L, diagonal included: eliminating a vertex connects its later neighbours."""
    graph = abs(A).toarray() != 0
    graph = (graph | graph.T)[np.ix_(order, order)]
    for k in range(len(graph)):
        later = k + 1 + np.flatnonzero(graph[k + 1 :, k])
        graph[np.ix_(later, later)] = True
    np.fill_diagonal(graph, True)
    return np.tril(graph)


def check(A, order):
    """All that the analysis says, against brute force."""
    n = A.shape[0]
    pattern = symmetric_pattern(A)
    L = eliminated(A, order)
    columns = L.sum(axis=0)
    S = analyse(pattern, order)
    assert (S.entries, S.flops) == (columns.sum(), (columns**2).sum())
    assert predicted(pattern, order) == (S.entries, S.flops)

    # Another order with the same fill: no entry comes or goes, they only move.
    assert np.array_equal(np.sort(S.order), np.arange(n))
    place = np.empty(n, dtype=int)
    place[S.order] = np.arange(n)
    moved = place[order]
    full = np.zeros((n, n), dtype=bool)
    full[np.ix_(moved, moved)] = L | L.T
    L = eliminated(A, S.order)
    assert np.array_equal(L, np.tril(full))

    count = len(S.parent)
    assert (len(S.first), len(S.start)) == (count + 1, count + 1)
    assert (S.first[0], S.first[-1], S.start[0], S.start[-1]) == (0, n, 0, len(S.rows))
    assert np.all(np.diff(S.first) > 0)
    stored, subtree = 0, np.ones(count, dtype=int)
    for s in range(count):
        own = np.arange(S.first[s], S.first[s + 1])
        below = S.first[s + 1] + np.flatnonzero(L[S.first[s + 1] :, own].any(axis=1))
        assert np.array_equal(S.rows[S.start[s] : S.start[s + 1]], [*own, *below])
        stored += len(own) * (len(own) + len(below))
        if len(below) == 0:
            assert S.parent[s] == -1
            continue
        parent = S.parent[s]
        assert s < parent
        assert S.first[parent] <= below[0] < S.first[parent + 1]
        subtree[parent] += subtree[s]
        # What is below is found in the parent, or an assembly would have nowhere to go.
        assert np.isin(below, S.rows[S.start[parent] : S.start[parent + 1]]).all()
    assert S.stored == stored
    # Postorder: a subtree ends with its root and has no gaps.
    for s in np.flatnonzero(S.parent >= 0):
        assert S.parent[s] - subtree[S.parent[s]] < s - subtree[s] + 1


@given(matrices(), st.sampled_from(["amd", "nd", "natural", "random"]))
def test_random_patterns(A, ordering):
    pattern = symmetric_pattern(A)
    if ordering == "random":
        order = np.random.default_rng(A.nnz).permutation(A.shape[0]).astype(np.int32)
    else:
        order = ORDERINGS[ordering](pattern)
    check(A, order)


@each_matrix
@each_ordering
def test_named_patterns(A, ordering):
    order = ORDERINGS[ordering](symmetric_pattern(A))
    assert order.dtype == np.int32
    check(A, order)


@given(matrices(), st.sampled_from([np.int32, np.int64]), st.booleans())
def test_pattern_of_the_sum_with_the_transpose(A, index, shuffled):
    n = A.shape[0]
    indices = A.indices.astype(index)
    if shuffled:
        for i in range(n):
            indices[A.indptr[i] : A.indptr[i + 1]] = indices[A.indptr[i] : A.indptr[i + 1]][::-1]
    pattern = _kernels.sparse_pattern(A.indptr.astype(index), indices)
    dense = A.toarray() != 0
    expected = dense | dense.T
    np.fill_diagonal(expected, False)
    rows, columns = np.nonzero(expected)
    assert pattern.n == n
    assert np.array_equal(pattern.indices, columns)
    assert np.array_equal(pattern.indptr, np.searchsorted(rows, np.arange(n + 1)))


def test_stored_zeros_belong_to_the_pattern():
    A = sparse.csr_array((np.zeros(2), ([0, 2], [2, 1])), shape=(3, 3))
    pattern = symmetric_pattern(A)
    assert np.array_equal(pattern.indptr, [0, 1, 2, 4])
    assert np.array_equal(pattern.indices, [2, 2, 0, 1])


@pytest.mark.parametrize(
    ("indptr", "indices", "remedy"),
    [
        ([], [], "pass n . 1 numbers"),
        ([1, 1], [0], "pass the arrays of a CSR matrix"),
        ([0, 2, 1], [0], "pass the arrays of a CSR matrix"),
        ([0, 1], [0, 0], "pass the arrays of a CSR matrix"),
        ([0, 1], [1], "pass a square CSR matrix"),
        ([0, 1], [-1], "pass a square CSR matrix"),
    ],
)
def test_arrays_that_are_no_matrix_are_refused(indptr, indices, remedy):
    for index in (np.int32, np.int64):
        with pytest.raises(ValueError, match=remedy):
            _kernels.sparse_pattern(np.array(indptr, dtype=index), np.array(indices, dtype=index))


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_orders_that_are_no_permutation_are_refused(order):
    pattern = symmetric_pattern(tridiagonal(3))
    for call in (analyse, predicted):
        with pytest.raises(ValueError, match=r"pass each of 0 \.\. n - 1 once"):
            call(pattern, np.array(order, dtype=np.int32))


def test_rectangular_matrices_are_refused():
    with pytest.raises(ValueError, match="pass a square matrix"):
        symmetric_pattern(sparse.csr_array((2, 3)))


@pytest.mark.parametrize("seed", range(5))
def test_minimum_degree_adds_no_fill_to_a_tree(seed):
    """A tree has leaves until the end, and eliminating a leaf adds nothing."""
    rng = np.random.default_rng(seed)
    n = 200
    above = [rng.integers(max(0, i - 20), i) for i in range(1, n)]
    label = rng.permutation(n)
    A = sparse.csr_array((np.ones(n - 1), (label[1:], label[above])), shape=(n, n))
    pattern = symmetric_pattern(A)
    assert predicted(pattern, amd(pattern))[0] == 2 * n - 1


@pytest.mark.parametrize("n", [1, 2, 50, 400])
def test_minimum_degree_adds_no_fill_to_a_path_or_a_star(n):
    for A in (tridiagonal(n), arrow(n)):
        pattern = symmetric_pattern(A)
        assert predicted(pattern, amd(pattern))[0] == 2 * n - 1
    full = n * (n + 1) / 2
    assert predicted(symmetric_pattern(arrow(n)), natural(pattern))[0] == full


@pytest.mark.parametrize("ordering", [amd, nd])
def test_dense_rows_come_last(ordering):
    n = 30
    order = ordering(symmetric_pattern(with_dense_rows(n)))
    assert set(order[-2:]) == {3, n}


def test_dissection_cuts_a_cube():
    """What comes last separates the rest into parts of at most 0.6 of the cube each."""
    m = 12
    pattern = symmetric_pattern(laplace_3d(m))
    order = nd(pattern)
    assert np.array_equal(np.sort(order), np.arange(m**3))
    for size in range(m**2 // 2, 2 * m**2):
        rest = order[:-size]
        graph = laplace_3d(m)[rest][:, rest]
        _, part = csgraph.connected_components(graph)
        if np.bincount(part).max() <= 0.6 * m**3:
            break
    else:
        pytest.fail("the last 2 m^2 vertices do not cut the cube")


def test_dissection_beats_minimum_degree_on_a_cube():
    pattern = symmetric_pattern(laplace_3d(24))
    assert predicted(pattern, nd(pattern))[1] < 0.9 * predicted(pattern, amd(pattern))[1]


@pytest.mark.parametrize("n", [900, 1500])
def test_dissection_of_graphs_without_small_separators(n):
    """Complete and random graphs, stars, and many components: a permutation all the same."""
    rng = np.random.default_rng(n)
    scattered = sparse.random_array((n, n), density=8 / n, rng=rng)
    for A in (from_dense(np.ones((n, n))), scattered, arrow(n), sparse.eye_array(n)):
        order = nd(symmetric_pattern(sparse.csr_array(A)))
        assert np.array_equal(np.sort(order), np.arange(n))


@each_ordering
def test_fill_of_a_grid_is_far_below_that_of_its_band(ordering):
    """m^2 unknowns: m^3 entries in the natural order, O(m^2 log m) with a good one."""
    m = 60
    pattern = symmetric_pattern(poisson_2d(m).A)
    entries, flops = predicted(pattern, ORDERINGS[ordering](pattern))
    if ordering == "natural":
        assert entries > 0.9 * m**3
    else:
        assert entries < 4 * m**2 * np.log2(m)
        assert flops < 40 * m**3


@given(matrices())
def test_the_same_pattern_gives_the_same_analysis(A):
    pattern = symmetric_pattern(A)
    order = amd(pattern)
    transposed = symmetric_pattern(sparse.csr_array(A.T))
    again = amd(transposed)
    assert np.array_equal(order, again)
    assert np.array_equal(nd(pattern), nd(transposed))
    S, T = analyse(pattern, order), analyse(pattern, again)
    for name in ("order", "first", "start", "rows", "parent"):
        assert np.array_equal(getattr(S, name), getattr(T, name))


def test_small_supernodes_are_merged():
    """The fundamental supernodes of a path are single columns, but for the last two."""
    S = analyse(symmetric_pattern(tridiagonal(100)), np.arange(100, dtype=np.int32))
    assert S.entries == 199
    assert np.diff(S.first).min() >= 2
    assert len(S.parent) <= 50


def test_arrays_outlive_the_analysis_and_are_read_only():
    rows = analyse(symmetric_pattern(tridiagonal(50)), np.arange(50, dtype=np.int32)).rows
    before = rows.copy()
    analyse(symmetric_pattern(arrow(50)), np.arange(50, dtype=np.int32))
    assert np.array_equal(rows, before)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 1


def test_without_pymetis_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"install roundwise\[metis\], or use nd"):
        metis(symmetric_pattern(tridiagonal(3)))


def test_arrays_that_do_not_fit_are_refused():
    """A kernel would read past their end."""
    A, places = tridiagonal(5), np.arange(5, dtype=np.int32)
    indptr, indices = A.indptr.astype(np.int64), A.indices.astype(np.int32)[:-1].copy()
    symbolic = analyse(symmetric_pattern(A), places)
    with pytest.raises(ValueError, match="number of indices"):
        _kernels.SupernodalPlan("lu", symbolic, indptr, indices, places, places)
    with pytest.raises(ValueError, match="number of indices"):
        _kernels.sparse_assignment(indptr, indices, np.ones(len(indices)), places.copy(), 100)
