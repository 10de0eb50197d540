"""The probe of a system: its features by their definition, its bins, its place among others."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from roundwise.features import FEATURES, PROBE, compute_features, probe
from roundwise.policies.profile import EDGES, KINDS, Profile, bin_in_words
from roundwise.problems import LinearSystem, poisson_2d, randsvd
from roundwise.problems.generators import haar_orthogonal
from roundwise.tuning import PROBE_CONTEXT


def looked(A, columns=1):
    problem = LinearSystem(A, np.ones(A.shape[0]))
    values = compute_features(problem, PROBE)
    return {name: value.value for name, value in values.items()} | {"columns": float(columns)}


def seen(A, **known):
    return Profile.of(PROBE_CONTEXT.vector(looked(A) | known))


def test_the_coherence_is_what_theory_says():
    """n sum(s^4) / sum(s^2)^2 - 1 for randomly rotated singular values."""
    n, rng = 400, np.random.default_rng(0)
    assert looked(haar_orthogonal(n, rng=rng))["coherence"] < 0.1
    assert looked(randsvd(n, 1e3, 2, rng=rng).A)["coherence"] < 0.1  # all but one are equal
    gaussian = np.mean([looked(rng.standard_normal((n, n)))["coherence"] for _ in range(8)])
    assert gaussian == pytest.approx(1.0, rel=0.2)
    for kappa in (1e4, 1e10):
        found = np.mean([looked(randsvd(n, kappa, 3, rng=rng).A)["coherence"] for _ in range(8)])
        assert found == pytest.approx(math.log(kappa) - 1, rel=0.2)
    assert looked(randsvd(n, 1e6, 1, rng=rng).A)["coherence"] == pytest.approx(n, rel=0.01)


def test_the_coherence_by_hand():
    """Two rows at an angle of 45 degrees: n cos^2 = 1, whatever their lengths."""
    A = np.zeros((2, 2))
    A[0, 0], A[1] = 7.0, 3.0
    values = looked(A)
    # Columns are scaled by what is off the diagonal: here the first alone has something.
    assert values["coherence"] == pytest.approx(1.0)
    assert values["remainder"] == pytest.approx(math.sqrt(0.5))  # the sine of the angle
    assert values["diagonal_share"] == pytest.approx(1.0)  # the upper median of 0.71 and 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_diagonal_share_of_a_heavy_diagonal(order):
    n = 300
    A = np.array(np.random.default_rng(0).standard_normal((n, n)) / math.sqrt(n), order=order)
    assert looked(A)["diagonal_share"] < 0.1
    heavy = looked(A + 3 * np.eye(n))["diagonal_share"]
    assert heavy == pytest.approx(3 / math.sqrt(10), rel=0.03)
    thin = sparse.csr_array(sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
    assert looked(thin)["diagonal_share"] == pytest.approx(2 / math.sqrt(6))


def test_the_remainder_is_what_theory_says():
    """One singular value outweighs all others: rows differ by 1 / kappa, and by no more."""
    n, rng = 400, np.random.default_rng(0)
    assert looked(haar_orthogonal(n, rng=rng))["remainder"] > 0.95
    assert looked(rng.standard_normal((n, n)))["remainder"] > 0.9
    for kappa in (1e4, 1e5, 1e6, 1e7):  # what a row has of u_1 is about 1 / sqrt(n), often less
        found = looked(randsvd(n, kappa, 1, rng=rng).A)["remainder"]
        assert 1 < found * kappa / math.sqrt(n) < 30
    assert looked(randsvd(n, 1e12, 1, rng=rng).A)["remainder"] <= 1e-7
    assert looked(np.ones((n, n)))["remainder"] == 1e-8


def test_units_of_measurement_do_not_matter():
    n, rng = 300, np.random.default_rng(0)
    A = randsvd(n, 1e4, 3, rng=rng).A
    rows, columns = (2.0 ** rng.integers(-20, 20, n) for _ in range(2))
    plain, scaled = looked(A), looked(rows[:, None] * A * columns)
    assert scaled["coherence"] == pytest.approx(plain["coherence"], rel=0.1)
    assert scaled["remainder"] == pytest.approx(plain["remainder"], rel=0.1)
    by_rows = looked(rows[:, None] * A)
    assert by_rows["coherence"] == pytest.approx(plain["coherence"], rel=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("exponent", [-900, -300, 300, 900])
def test_huge_and_tiny_matrices_look_like_others(form, exponent):
    """Squares of their entries are out of range; powers of two change no bit of the features."""
    A = np.random.default_rng(0).standard_normal((80, 80))
    with np.errstate(all="raise"):
        assert looked(form(np.ldexp(A, exponent))) == looked(form(A))


def test_the_look_reads_64_rows():
    n = 640
    A = np.full((n, n), np.nan)
    A[:: n // probe.ROWS] = 1.0

    class Problem:
        is_sparse = False

    problem = Problem()
    problem.n, problem.A = n, A
    assert probe.row_features(problem)["coherence"] == pytest.approx(n)


def test_entries_columns_and_structure(monkeypatch):
    n = 70
    A = np.random.default_rng(0).standard_normal((n, n))
    triangle = sparse.csr_array(np.triu(A))
    assert looked(A)["entries"] == n * n
    assert looked(triangle)["entries"] == n * (n + 1) // 2
    assert [looked(M)["sparse"] for M in (A, triangle)] == [0, 1]
    assert looked(poisson_2d(12).A)["symmetric_pattern"] == 1
    assert looked(triangle)["symmetric_pattern"] == looked(A)["symmetric_pattern"] == 0
    spd = A @ A.T
    assert looked(spd)["looks_positive_definite"] == 0  # too small to ask
    monkeypatch.setattr(probe, "cholesky_from", lambda: n)
    assert looked(spd)["looks_positive_definite"] == 1
    assert looked(A)["looks_positive_definite"] == looked(-spd)["looks_positive_definite"] == 0
    indefinite = A + A.T + np.diag(np.full(n, 10.0))
    indefinite[n // 2, 3] = indefinite[3, n // 2] = 100.0
    assert (np.diagonal(indefinite) > 0).all()
    assert looked(indefinite)["looks_positive_definite"] == 0  # a minor of two rows tells
    almost = spd.copy()
    almost[40, 30] = np.nextafter(almost[40, 30], np.inf)
    assert looked(almost)["looks_positive_definite"] == 0
    two = SimpleNamespace(n=n, A=A, b=np.ones((n, 2)), is_sparse=False)
    assert probe.probe(two, ["columns"]) == {"n": n, "entries": n * n, "columns": 2, "sparse": 0}


def test_a_group_is_computed_once(monkeypatch):
    """The first feature of a group that is asked for has the seconds, the others next to none."""
    group = [name for name, feature in FEATURES.items() if feature.group == "row_features"]
    assert group == ["diagonal_share", "coherence", "remainder"]
    problem, calls = LinearSystem(np.eye(5), np.ones(5)), []

    def compute(problem):
        calls.append(problem)
        return dict.fromkeys(group, 0.5)

    changed = {name: FEATURES[name].__class__(name, compute, "", group="rows") for name in group}
    for name, feature in changed.items():
        monkeypatch.setitem(FEATURES, name, feature)
    values = compute_features(problem, ["remainder", "n", "coherence", "diagonal_share"])
    assert len(calls) == 1
    assert [values[name].value for name in group] == [0.5] * 3
    compute_features(problem, ["coherence"])
    assert len(calls) == 2


# Profiles of systems


def test_kinds():
    n = 70
    A = np.random.default_rng(0).standard_normal((n, n))
    assert seen(A).kind == "dense"
    assert seen(A @ A.T, looks_positive_definite=1.0).kind == "positive definite"
    assert seen(poisson_2d(12).A).kind == "sparse"
    triangle = sparse.csr_array(np.triu(A))
    assert seen(triangle).kind == "sparse unsymmetric"
    assert seen(triangle).entries == n * (n + 1) // 2
    assert {kind.sparse for kind in KINDS.values()} == {True, False}


def test_a_context_gives_back_what_was_seen():
    A = randsvd(90, 1e4, 3, rng=0).A
    values = looked(A, columns=7)
    one = Profile.of(PROBE_CONTEXT.vector(values))
    assert (one.n, one.entries, one.columns) == (90, 8100, 7)
    assert one.diagonal_share == values["diagonal_share"]
    assert one.coherence == pytest.approx(values["coherence"])
    assert one.remainder == pytest.approx(values["remainder"])


def test_zero_rows_and_tiny_matrices_are_seen():
    assert seen(np.zeros((3, 3))).coherence == 0.01  # the floor
    assert seen(np.zeros((3, 3))).diagonal_share == 0
    assert seen(np.array([[2.0]])).diagonal_share == 1
    assert seen(sparse.csr_array((200, 200))).kind == "sparse unsymmetric"


def test_bins_and_positions_of_all_kinds():
    for kind in KINDS:
        near, far = Profile(kind, 700, 7000, 0.5, 3.0), Profile(kind, 700, 70_000, 0.5, 3.0)
        assert near.bin.startswith(f"{kind}/")
        assert (near.bin != far.bin) == near.is_sparse
        assert (near.position != far.position) == near.is_sparse
        assert (near.series != far.series) == near.is_sparse
        assert near.series != Profile(kind, 701, 7000, 0.5, 3.0).series


def test_bins_are_numbers_that_words_explain():
    dense = Profile("dense", 1000, 10**6, 0.02, coherence=3.0, remainder=0.5)
    assert dense.bin == "dense/2.3.0.1"
    assert bin_in_words(dense.bin) == (
        "dense, coherence 2.5 to 6, remainder >= 0.1, diagonal share < 0.3, n 600 to 1500"
    )
    assert bin_in_words(dense.series) == "dense, n = 1000"
    grid = Profile("sparse", 10**5, 5 * 10**5, 0.95)
    assert grid.bin == "sparse/1.3.3"
    assert bin_in_words(grid.series) == "sparse, n = 100000, entries = 500000"


def test_edges_belong_to_the_bin_above():
    for coherence, place in ((0.0, 0), (EDGES["coherence"][0], 1), (1e9, len(EDGES["coherence"]))):
        key = Profile("dense", 1000, 10**6, 0.02, coherence).bin
        assert key.split("/")[1].split(".")[0] == str(place)
