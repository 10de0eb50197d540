"""Features against closed forms, bounds and invariances."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from cases import BACKENDS, supports

import roundwise as rw
from roundwise.features import FEATURES, PROBE, compute_features
from roundwise.features.definitions import KAPPA_EXACT_SPARSE_LIMIT, FeatureValue, log10_floored
from roundwise.features.probe import BLOCKS_FROM
from roundwise.problems import (
    LinearSystem,
    convection_diffusion_2d,
    high_contrast_2d,
    poisson_2d,
    random_sparse_spd,
    randsvd,
)
from roundwise.problems.generators import haar_orthogonal
from roundwise.tuning import PAPER_CONTEXT

U64 = 2.0**-53
CHEAP = [
    "n", "density", "max_abs", "norm_one", "norm_inf", "symmetry", "diagonal_dominance",
    "row_scale_spread",
]  # fmt: skip
WITH_FACTORS = ["kappa_est", "pivot_growth", "fill_ratio"]
STORAGES = [np.asarray, sp.csr_array]


def system(A):
    return LinearSystem(A, np.ones(A.shape[0]))


def factorize(A, arithmetic="operation", fmt=rw.FP64):
    return rw.backends.get_backend(arithmetic).matrix(A, fmt).lu()


def feature(name, A, factors=None):
    return compute_features(system(A), [name], factors)[name].value


def kappa_est(A, arithmetic="operation", fmt=rw.FP64):
    return feature("kappa_est", A, factorize(A, arithmetic, fmt))


def kappa_one(A):
    A = A.toarray() if sp.issparse(A) else A
    return np.linalg.norm(A, 1) * np.linalg.norm(np.linalg.inv(A), 1)


def random_matrix(kind, n, rng):
    """Random test matrices; the last kind is sparse."""
    if kind == "gaussian":
        return rng.standard_normal((n, n))
    if kind == "randsvd":
        return randsvd(n, 10.0 ** rng.integers(0, 10), int(rng.integers(1, 6)), rng=rng).A
    if kind == "signs":
        return rng.integers(-1, 2, (n, n)) + 1e-3 * rng.standard_normal((n, n))
    return sp.csr_array(
        sp.random_array((n, n), density=0.2, rng=rng) + sp.diags_array(rng.uniform(0.2, 1, n))
    )


KINDS = ["gaussian", "randsvd", "signs", "sparse"]


# The list of features and the way they are asked for.


def test_the_features_and_what_they_need():
    assert set(FEATURES) == {*CHEAP, *PROBE, "largest_block", "kappa_exact", *WITH_FACTORS}
    assert {name for name, f in FEATURES.items() if f.needs_factors} == set(WITH_FACTORS)
    assert all(name == f.name and f.doc for name, f in FEATURES.items())


@pytest.mark.parametrize("problem", [randsvd(30, 1e3, rng=0), poisson_2d(6)], ids=repr)
@pytest.mark.parametrize("arithmetic", BACKENDS)
def test_every_feature_has_a_value(problem, arithmetic):
    values = compute_features(problem, FEATURES, factorize(problem.A, arithmetic))
    assert list(values) == list(FEATURES)
    for name, value in values.items():
        assert isinstance(value, FeatureValue)
        assert value.name == name
        assert type(value.value) is float
        assert math.isfinite(value.value)
        assert float(value) == value.value


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(rw.UnknownNameError, match="unknown feature 'kapa'; known: n, density"):
        compute_features(poisson_2d(2), ["n", "kapa"])


def test_one_name_must_be_in_a_list():
    with pytest.raises(TypeError, match=r"\['norm_inf'\]"):
        compute_features(poisson_2d(2), "norm_inf")


def test_no_names_no_features():
    assert compute_features(poisson_2d(2), []) == {}


@pytest.mark.parametrize("name", WITH_FACTORS)
def test_missing_factors_are_asked_for(name):
    with pytest.raises(ValueError, match=f"{name} needs a factorization; pass factors"):
        compute_features(poisson_2d(2), [name])


def test_factors_of_another_size_are_refused():
    with pytest.raises(ValueError, match="pass the factors of A"):
        compute_features(poisson_2d(3), ["kappa_est"], factorize(np.eye(2)))


def test_nan_is_never_returned():
    class NanFactors:
        L, U = np.eye(2), np.full((2, 2), np.nan)

        def solve(self, b, transpose=False):
            return np.full_like(b, np.nan)

    problem = system(np.eye(2))
    with pytest.raises(rw.RoundwiseError, match="pivot_growth is NaN"):
        compute_features(problem, ["pivot_growth"], NanFactors())
    assert compute_features(problem, ["kappa_est"], NanFactors())["kappa_est"].value == math.inf


# Cheap features.


@pytest.mark.parametrize("store", STORAGES)
def test_a_small_matrix_by_hand(store):
    A = store(np.array([[4.0, -1.0, 0.0], [2.0, -8.0, 2.0], [0.0, 0.0, 0.5]]))
    values = compute_features(system(A), CHEAP)
    expected = {
        "n": 3,
        "density": 6 / 9,
        "max_abs": 8,
        "norm_one": 9,
        "norm_inf": 12,
        # A - A' has -3 and 2 twice; ||A||_F^2 = 16 + 1 + 4 + 64 + 4 + 0.25
        "symmetry": 1 - math.sqrt(26) / (2 * math.sqrt(89.25)),
        "diagonal_dominance": 8 / 12,
        "row_scale_spread": 16,
    }
    for name in CHEAP:
        assert values[name].value == pytest.approx(expected[name], rel=4 * U64)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_equals_dense(kind):
    A = random_matrix(kind, 40, np.random.default_rng(0))
    dense = A.toarray() if sp.issparse(A) else np.where(np.abs(A) < 0.3, 0.0, A)
    names = [*CHEAP, "kappa_exact"]
    left = compute_features(system(dense), names)
    right = compute_features(system(sp.csr_array(dense)), names)
    for name in names:
        assert left[name].value == pytest.approx(right[name].value, rel=100 * U64)


def test_memory_order_does_not_matter():
    A = np.random.default_rng(1).standard_normal((20, 20))
    for name in [*CHEAP, "kappa_exact"]:
        assert feature(name, np.asfortranarray(A)) == feature(name, A)
    assert kappa_est(np.asfortranarray(A)) == kappa_est(A)


def test_sparse_input_is_not_made_dense():
    n = 200_000  # dense: 320 GB
    A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr")
    values = {name: v.value for name, v in compute_features(system(A), CHEAP).items()}
    assert values["norm_inf"] == values["norm_one"] == 4
    assert values["symmetry"] == values["row_scale_spread"] == 1
    assert values["diagonal_dominance"] == 0.5
    assert values["density"] == (3 * n - 2) / n**2


@pytest.mark.parametrize("store", STORAGES)
def test_symmetry_runs_from_skew_to_symmetric(store):
    A = np.random.default_rng(2).standard_normal((15, 15))
    assert feature("symmetry", store(A + A.T)) == 1
    assert feature("symmetry", store(A - A.T)) == pytest.approx(0, abs=4 * U64)
    assert 0 < feature("symmetry", store(A)) < 1
    # ||A||_F^2 is the sum of those of the symmetric and the skew part: equal in a triangle
    assert feature("symmetry", store(np.triu(A, 1))) == pytest.approx(1 - math.sqrt(0.5))
    assert feature("symmetry", store(A.T)) == pytest.approx(feature("symmetry", store(A)))


@pytest.mark.parametrize("store", STORAGES)
def test_diagonal_dominance_is_a_half_at_the_border(store):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((12, 12))
    np.fill_diagonal(A, 0.0)
    border = np.abs(A).sum(axis=1)
    for factor in (0.5, 1.0, 3.0):
        M = A + np.diag(factor * border)
        share = factor / (1 + factor)
        assert feature("diagonal_dominance", store(M)) == pytest.approx(share)
        scales = 2.0 ** rng.integers(-60, 60, 12)  # exact, and rows may be scaled
        scaled = feature("diagonal_dominance", store(scales[:, None] * M))
        assert scaled == feature("diagonal_dominance", store(M))
    assert feature("diagonal_dominance", store(A)) == 0


@pytest.mark.parametrize("store", STORAGES)
def test_features_under_permutation_and_scaling(store):
    rng = np.random.default_rng(4)
    A = np.where(rng.random((25, 25)) < 0.4, rng.standard_normal((25, 25)), 0.0) + np.eye(25)
    p = rng.permutation(25)
    for name in [*CHEAP, "kappa_exact"]:
        value = feature(name, store(A))
        assert feature(name, store(A[np.ix_(p, p)])) == pytest.approx(value, rel=1e-9)
        scale = 2.0**9 if name in ("max_abs", "norm_one", "norm_inf") else 1.0
        assert feature(name, store(2.0**9 * A)) == pytest.approx(scale * value, rel=1e-9)
    assert feature("norm_one", store(A.T)) == pytest.approx(feature("norm_inf", store(A)))


# kappa_exact.


@pytest.mark.parametrize("store", STORAGES)
def test_kappa_exact_of_diagonal_matrices(store):
    d = np.array([3.0, -1e-3, 7.0, 1e5])
    assert feature("kappa_exact", store(np.diag(d))) == pytest.approx(1e8, rel=1e-14)


@pytest.mark.parametrize("kappa", [1.0, 1e1, 1e4, 1e8])
@pytest.mark.parametrize("mode", [1, 2, 3, 4])
def test_kappa_exact_of_randsvd(kappa, mode):
    n = 40
    value = compute_features(randsvd(n, kappa, mode, rng=5), ["kappa_exact"])["kappa_exact"].value
    assert value == pytest.approx(kappa, rel=20 * n * U64 * kappa)


def test_kappa_exact_of_hilbert_matrices():
    # Higham, Accuracy and Stability of Numerical Algorithms, Table 28.1
    for n, kappa in [(2, 1.928e1), (4, 1.551e4), (6, 1.495e7), (8, 1.526e10)]:
        assert feature("kappa_exact", scipy.linalg.hilbert(n)) == pytest.approx(kappa, rel=1e-3)


@pytest.mark.parametrize("m", [3, 8, 20])
def test_kappa_exact_of_poisson(m):
    theta = math.pi / (2 * (m + 1))
    value = compute_features(poisson_2d(m), ["kappa_exact"])["kappa_exact"].value
    assert value == pytest.approx((math.cos(theta) / math.sin(theta)) ** 2, rel=1e-12)


def test_kappa_exact_of_a_large_sparse_matrix_names_the_remedy():
    A = sp.eye_array(KAPPA_EXACT_SPARSE_LIMIT + 1, format="csr")
    with pytest.raises(ValueError, match="use kappa_est with a factorization"):
        feature("kappa_exact", A)


@pytest.mark.parametrize("store", STORAGES)
def test_singular_matrices(store):
    zero_row, zero_column = np.diag([1.0, 2.0, 3.0]), np.ones((3, 3))
    zero_row[1] = zero_column[:, 2] = 0.0
    for A in (zero_row, zero_column, np.zeros((2, 2)), np.zeros((1, 1))):
        assert feature("kappa_exact", store(A)) == math.inf
    # The rank is lost to rounding only up to the error of the SVD.
    ones = np.ones((6, 6)) + np.arange(6)
    assert feature("kappa_exact", store(ones)) > 1e15


def test_beyond_double_precision_kappa_exact_is_large():
    assert feature("kappa_exact", randsvd(30, 1e20, rng=0).A) > 1e15


# kappa_est.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arithmetic", BACKENDS)
def test_kappa_est_is_a_lower_bound_within_a_factor_3(kind, arithmetic):
    rng = np.random.default_rng(6)
    exact = 0
    for trial in range(60):
        A = random_matrix(kind, int(rng.integers(2, 60)), rng)
        kappa = kappa_one(A)
        estimate = kappa_est(A, arithmetic)
        rounding = 100 * A.shape[0] * U64 * kappa
        assert kappa / 3 <= estimate <= kappa * (1 + rounding), (trial, kappa)
        exact += estimate > 0.999 * kappa
    assert exact > 30  # Higham & Tisseur: mostly exact


@pytest.mark.parametrize(
    "problem",
    [
        poisson_2d(15),
        high_contrast_2d(12, 1e6, rng=0),
        convection_diffusion_2d(12, 1e-2, (3.0, -7.0)),
        random_sparse_spd(150, 0.02, 1e-3, rng=0),
    ],
    ids=lambda problem: problem.name,
)
def test_kappa_est_of_sparse_problems(problem):
    kappa = kappa_one(problem.A)
    for arithmetic in BACKENDS:
        estimate = kappa_est(problem.A, arithmetic)
        assert kappa / 3 <= estimate <= kappa * (1 + 1e-13 * kappa)


def test_kappa_est_bounds_kappa_exact():
    # kappa_2 / n <= kappa_1 <= n kappa_2
    for seed in range(10):
        problem = randsvd(50, 1e6, 3, rng=seed)
        ratio = kappa_est(problem.A) / 1e6
        assert 1 / (3 * 50) <= ratio <= 50


def test_kappa_est_is_exact_for_diagonal_orthogonal_and_inverse_positive_matrices():
    d = 10.0 ** np.linspace(-4, 5, 30)
    assert kappa_est(np.diag(d)) == pytest.approx(1e9, rel=1e-12)
    assert kappa_est(sp.csr_array(np.diag(d))) == pytest.approx(1e9, rel=1e-12)
    permutation = np.eye(30)[np.random.default_rng(0).permutation(30)]
    assert kappa_est(permutation) == pytest.approx(1, rel=4 * U64)
    # A^-1 >= 0: ||A^-T e||_inf = ||A^-1||_1 and the second step finds the column
    assert kappa_est(poisson_2d(10).A) == pytest.approx(kappa_one(poisson_2d(10).A), rel=1e-12)
    Q = haar_orthogonal(30, rng=0)
    norms = np.linalg.norm(Q, 1) * np.linalg.norm(Q.T, 1)
    assert norms / 3 <= kappa_est(Q) <= norms * (1 + 1e-12)


def test_kappa_est_is_deterministic_and_leaves_the_random_state_alone():
    A = randsvd(80, 1e5, 3, rng=1).A
    before = np.random.get_state()  # noqa: NPY002
    first = kappa_est(A)
    after = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert before[2:] == after[2:]
    np.testing.assert_array_equal(before[1], after[1])
    np.random.seed(12345)  # noqa: NPY002
    second = kappa_est(A)
    np.random.set_state(before)  # noqa: NPY002
    assert first == second == kappa_est(A.copy())


def test_kappa_est_needs_no_more_than_solve():
    class Inverse:
        def __init__(self, A):
            self.lu = scipy.linalg.lu_factor(A)
            self.columns = 0

        def solve(self, b, transpose=False):
            self.columns += b.shape[1]
            return scipy.linalg.lu_solve(self.lu, b, trans=int(transpose))

    A = np.random.default_rng(7).standard_normal((60, 60))
    inverse = Inverse(A)
    assert feature("kappa_est", A, inverse) == pytest.approx(kappa_est(A), rel=1e-10)
    assert inverse.columns <= 20


@pytest.mark.parametrize(
    ("arithmetic", "fmt"),
    [
        (arithmetic, fmt)
        for arithmetic in BACKENDS
        for fmt in (rw.BF16, rw.FP16, rw.formats.TF32, rw.FP32)
        if supports(arithmetic, fmt)
    ],
    ids=str,
)
def test_kappa_est_from_low_precision_factors(arithmetic, fmt):
    well = randsvd(40, 10.0, rng=8).A
    assert kappa_est(well, arithmetic, fmt) == pytest.approx(kappa_est(well), rel=0.5)
    ill = randsvd(40, 1e12, rng=8).A
    saturated = kappa_est(ill, arithmetic, fmt)  # the perturbed factors see 1 / u at most
    # Native bf16 eliminates in blocks of 64 in FP32: up to there only stored factors are rounded.
    eliminated = rw.FP32 if (arithmetic, fmt) == ("native", rw.BF16) else fmt
    assert 0.01 / fmt.unit_roundoff < saturated < min(1e12, 1e4 / eliminated.unit_roundoff)


# pivot_growth and fill_ratio.


@pytest.mark.parametrize("arithmetic", BACKENDS)
def test_pivot_growth_of_wilkinsons_matrix_doubles(arithmetic):
    n = 12
    A = np.asfortranarray(np.eye(n) - np.tril(np.ones((n, n)), -1))  # its rows are interchanged
    A[:, -1] = 1.0
    assert feature("pivot_growth", A, factorize(A, arithmetic)) == 2.0 ** (n - 1)
    assert feature("fill_ratio", A, factorize(A, arithmetic)) == 1.0


@pytest.mark.parametrize("arithmetic", BACKENDS)
@pytest.mark.parametrize("store", STORAGES)
def test_growth_and_fill_without_elimination(arithmetic, store):
    A = store(np.triu(np.ones((9, 9))) * 2.0**5)
    values = compute_features(system(A), WITH_FACTORS, factorize(A, arithmetic))
    assert values["pivot_growth"].value == 1
    assert values["fill_ratio"].value == 1


@pytest.mark.parametrize("arithmetic", BACKENDS)
def test_fill_ratio_counts_the_factors(arithmetic):
    A = poisson_2d(12).A
    F = factorize(A, arithmetic)
    filled = np.count_nonzero(F.L.toarray() + F.U.toarray())
    assert feature("fill_ratio", A, F) == filled / A.nnz
    assert filled > A.nnz
    assert feature("pivot_growth", A, F) == 1  # a diagonally dominant M-matrix


# Edges.


@pytest.mark.parametrize("store", STORAGES)
@pytest.mark.parametrize("a", [1.0, -3.0, 1e-300, 1e300])
def test_one_unknown(store, a):
    A = store(np.array([[a]]))
    values = compute_features(system(A), FEATURES, factorize(A))
    known = dict.fromkeys(("coherence", "nd_flops", "banded", "triangular", "diagonals"), 0)
    is_sparse = store is sp.csr_array
    known |= dict.fromkeys(
        ("sparse", "symmetric_pattern", "symmetric", "strong_diagonal", "static_pivots"),
        float(is_sparse),
    )
    # A dense one is too small to ask.
    known["looks_positive_definite"] = float(is_sparse and a > 0)
    known["factor_flops"] = 1.0 if is_sparse else 1 / 3
    ones = set(FEATURES) - {"max_abs", "norm_one", "norm_inf", *known}
    assert {name: values[name].value for name in ones} == dict.fromkeys(ones, 1.0)
    assert {name: values[name].value for name in known} == known
    for name in ("max_abs", "norm_one", "norm_inf"):
        assert values[name].value == abs(a)


@pytest.mark.parametrize("store", STORAGES)
def test_the_zero_matrix(store):
    values = compute_features(system(store(np.zeros((3, 3)))), [*CHEAP, "kappa_exact"])
    assert {name: value.value for name, value in values.items()} == {
        "n": 3,
        "density": 0,
        "max_abs": 0,
        "norm_one": 0,
        "norm_inf": 0,
        "symmetry": 1,
        "diagonal_dominance": 0,
        "row_scale_spread": math.inf,
        "kappa_exact": math.inf,
    }


@pytest.mark.parametrize("store", STORAGES)
@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e304])
def test_scaled_far_away(store, scale):
    """Nothing overflows on the way, and no warning or floating-point error escapes."""
    A = np.random.default_rng(9).standard_normal((10, 10))
    names = ["symmetry", "diagonal_dominance", "row_scale_spread", "kappa_exact", "kappa_est"]
    names += ["diagonal_share", "coherence"]
    plain = compute_features(system(store(A)), names, factorize(store(A)))
    M = store(A * scale)
    with np.errstate(all="raise"):
        scaled = compute_features(system(M), names, factorize(M))
    # 1e-310 is subnormal and has 13 digits left
    for name in names:
        assert scaled[name].value == pytest.approx(plain[name].value, rel=1e-9), name


@pytest.mark.parametrize("store", STORAGES)
def test_badly_scaled_rows(store):
    d = np.array([1e-200, 1.0, 1e200])
    with np.errstate(all="raise"):
        values = compute_features(system(store(np.diag(d))), FEATURES, factorize(store(np.diag(d))))
    assert values["kappa_exact"].value == math.inf  # 1e400
    assert values["kappa_est"].value == math.inf
    assert values["row_scale_spread"].value == math.inf
    assert values["symmetry"].value == values["diagonal_dominance"].value == 1
    assert values["norm_inf"].value == 1e200
    d = np.array([1e-150, 1.0, 1e150])
    values = compute_features(system(store(np.diag(d))), FEATURES, factorize(store(np.diag(d))))
    for name in ("kappa_exact", "kappa_est", "row_scale_spread"):
        assert values[name].value == pytest.approx(1e300, rel=1e-12)


@pytest.mark.parametrize("store", STORAGES)
def test_norms_beyond_double_precision_are_infinite(store):
    A = store(np.array([[1.5e308, 1.5e308], [1.5e308, -1.5e308]]))
    with np.errstate(all="raise"):
        values = compute_features(system(A), [*CHEAP, "kappa_exact"])
    assert values["norm_inf"].value == values["norm_one"].value == math.inf
    assert values["diagonal_dominance"].value == 0.5
    assert values["kappa_exact"].value == pytest.approx(1)
    triangle = store(np.array([[1.5e308, 0.0], [1.5e308, 1.5e308]]))
    with np.errstate(all="raise"):
        assert kappa_est(triangle) == math.inf


# The paper's context.


def test_log10_floored():
    assert log10_floored(1e5, 1.0) == 5
    assert log10_floored(0.01, 1.0) == 0
    assert log10_floored(math.inf, 1.0) == math.inf
    assert log10_floored(FeatureValue("n", 100.0, 0.0), 1.0) == 2
    with pytest.raises(ValueError, match="undefined"):
        log10_floored(math.nan, 1.0)
    with pytest.raises(ValueError, match="floor > 0"):
        log10_floored(1.0, 0.0)


def test_the_context_of_the_paper():
    A = np.diag([1.0, 1e-4])
    features = compute_features(system(A), ["norm_inf", "kappa_exact"])
    np.testing.assert_allclose(PAPER_CONTEXT.vector(features), [4, 0], atol=1e-14)
    small = {"kappa_exact": 0.5, "norm_inf": 1e-20}
    np.testing.assert_allclose(PAPER_CONTEXT.vector(small), [0, -20])
    zero = compute_features(system(np.zeros((2, 2))), ["norm_inf", "kappa_exact"])
    np.testing.assert_allclose(PAPER_CONTEXT.vector(zero), [math.inf, math.log10(2.0**-1022)])
    with pytest.raises(ValueError, match="features lack kappa_exact"):
        PAPER_CONTEXT.vector({"norm_inf": 1.0})


# largest_block


def test_the_largest_block_by_hand():
    """Triangular matrices fall into pieces of one row, a cycle is one piece."""
    n = BLOCKS_FROM
    upper = sp.csr_array(sp.eye_array(n) + sp.eye_array(n, k=1))
    assert feature("largest_block", upper) == 1 / n
    cycle = sp.csr_array(upper + sp.csr_array(([1.0], ([n - 1], [0])), shape=(n, n)))
    assert feature("largest_block", cycle) == 1
    three = sp.csr_array((np.ones(3), ([1, 2, 0], [0, 1, 2])), shape=(n, n))  # 0 -> 2 -> 1 -> 0
    assert feature("largest_block", sp.csr_array(upper + three)) == 3 / n


def test_the_largest_block_does_not_depend_on_the_order_of_rows():
    n, rng = BLOCKS_FROM, np.random.default_rng(0)
    upper = sp.csr_array(sp.eye_array(n) + sp.eye_array(n, k=7))
    shuffled = sp.csr_array(upper[rng.permutation(n)])
    assert not shuffled.diagonal().all()
    assert feature("largest_block", shuffled) == 1 / n


def test_where_no_block_is_looked_for():
    n = BLOCKS_FROM
    assert feature("largest_block", np.eye(3)) == 1  # dense
    assert feature("largest_block", sp.csr_array(np.triu(np.ones((4, 4))))) == 1  # small
    assert feature("largest_block", sp.csr_array(sp.eye_array(n))) == 1  # a symmetric pattern
    assert feature("largest_block", sp.csr_array(sp.eye_array(n, k=1))) == 1  # singular
