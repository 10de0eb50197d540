"""How `solve` chooses among sparse methods, and that no choice costs more than it may."""

import numpy as np
import pytest
from exact import passes
from hard_systems import arrow
from scipy import sparse

import roundwise as rw
from roundwise.actions import Action
from roundwise.backends import NativeBackend, Status
from roundwise.backends.engines import orderings
from roundwise.backends.engines.orderings import Orders, banded_counts
from roundwise.costs.prices import generic_prices
from roundwise.features import compute_features
from roundwise.methods import AMOUNTS, METHODS, SAFE
from roundwise.policies.profile import STRUCTURE, Profile
from roundwise.problems import LinearSystem, convection_diffusion_2d, laplace_3d, poisson_2d
from roundwise.problems.pde import convection_diffusion_3d
from roundwise.solver.policy_argument import default_policy
from roundwise.solver.prepare import prepare
from roundwise.tuning import PROBE_CONTEXT

NATIVE = NativeBackend()
REST = "fp64-fp64-fp64"


def features(A, names=STRUCTURE):
    problem = LinearSystem(sparse.csr_array(A), np.ones(A.shape[0]))
    return {name: f.value for name, f in compute_features(problem, names).items()}


# Structure


def test_structure_by_hand():
    definite = poisson_2d(6).A
    of_dense = "banded", "triangular"
    assert features(definite) == {name: float(name not in of_dense) for name in STRUCTURE}
    indefinite = definite - 9 * sparse.eye_array(36)
    assert features(indefinite)["symmetric"] == 1
    assert features(indefinite)["looks_positive_definite"] == 0
    exchange = sparse.csr_array(np.roll(np.diag([3.0, -1.0, 2.0]), 1, axis=0))
    found = features(exchange)
    assert (found["symmetric"], found["strong_diagonal"], found["static_pivots"]) == (0, 0, 1)
    singular = sparse.csr_array(np.array([[1.0, 1.0, 1.0], [0, 0, 1.0], [0, 0, 1.0]]))
    assert features(singular)["static_pivots"] == 0


def test_counts_of_a_tridiagonal_matrix():
    """L has 2 n - 1 entries, and the columns' squares sum to 4 (n - 1) + 1."""
    n = 50
    A = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    found = features(A, ("factor_entries", "factor_flops", "nd_flops", "row_squares"))
    assert list(found.values()) == [2 * n - 1, 4 * (n - 1) + 1, 0, 9 * (n - 2) + 8]


def band(n, left, right, rng):
    """Unsymmetric, without a strong diagonal; all places within the band are filled."""
    offsets = [k for k in range(-left, right + 1) if k]
    values = [rng.uniform(1, 2, n - abs(k)) for k in offsets]
    A = sparse.diags_array([*values, np.full(n, 1e-6)], offsets=[*offsets, 0])
    return sparse.csr_array(A)


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 2), (3, 2)])
def test_a_narrow_band_is_counted_as_it_comes(left, right):
    """Row i reaches min(i, l) places to the left and min(n - 1 - i, r) to the right."""
    n = 60
    A = band(n, left, right, np.random.default_rng(0))
    i = np.arange(n)
    before, after = np.minimum(i, left), np.minimum(n - 1 - i, right)
    found = features(A, ("static_pivots", "factor_entries", "factor_flops", "nd_flops"))
    assert found["factor_entries"] == n + (before.sum() + after.sum()) / 2
    assert found["factor_flops"] == ((1 + before) * (1 + after)).sum()
    assert (found["static_pivots"], found["nd_flops"]) == (0, 0)
    orders = Orders(A, matched=True)
    assert orders.counts
    assert "rows" not in vars(orders)  # nobody has matched them


def test_what_is_no_narrow_band():
    rng = np.random.default_rng(0)
    assert banded_counts(band(60, 3, 3, rng)) is not None
    assert banded_counts(arrow(60)) is None
    assert banded_counts(poisson_2d(10).A) is None
    assert banded_counts(band(200, 30, 30, rng)) is None  # too many flops
    assert banded_counts(sparse.csr_array((3, 3))) is None  # empty rows


def seen(A, **known):
    return Profile.of(PROBE_CONTEXT.vector(features(A, PROBE_CONTEXT.features) | known).tolist())


def test_klu_is_for_systems_whose_fill_is_known():
    """Pivots that leave the diagonal make it fill in, and it cannot be stopped."""
    poisson = poisson_2d(20).A
    border = sparse.csr_array(np.ones((2, 400)))
    saddle = sparse.csr_array(sparse.block_array([[poisson, border.T], [border, None]]))
    for A, known in (
        (convection_diffusion_2d(20, 0.1, (1.0, 3.0)).A, True),
        (band(200, 2, 2, np.random.default_rng(0)), True),
        (poisson, True),
        (saddle, False),
    ):
        looked = seen(A)
        assert looked.fill_is_known is known
        assert ("klu/amd" in {method.name for method in looked.methods}) is known
    unmatched = {"static_pivots": 0.0, "factor_entries": 0.0, "factor_flops": 0.0}
    assert not seen(convection_diffusion_2d(20, 0.1, (1.0, 3.0)).A, **unmatched).fill_is_known


def test_every_ladder_ends_in_the_safe_method():
    for method in METHODS.values():
        if method.sparse and NATIVE.runs(method.name, method.formats[0], sparse=True):
            first = Action((method.formats[0], rw.FP64, rw.FP64, rw.FP64), method.name)
            last = rw.VerifiedSolve().climb(first, NATIVE, sparse=True)[-1]
            assert (last.method, last[0]) == (SAFE, rw.FP64)


# The choice


@pytest.mark.parametrize(
    ("A", "method"),
    [
        (laplace_3d(15), "cholesky"),
        (sparse.csr_array(laplace_3d(15) - 7 * sparse.eye_array(3375)), "ldl"),
        (convection_diffusion_3d(18, 10.0), None),
    ],
    ids=["definite", "indefinite", "unsymmetric"],
)
def test_the_method_fits_the_matrix(A, method):
    b = np.ones(A.shape[0])
    solution = rw.factor(A).solve(b, full_output=True)  # small ones are solved without a choice
    used = Action.parse(solution.attempts[0].action).method
    assert method is None or used.startswith((method, "pardiso", "cholmod", "amg", "multigrid"))
    assert METHODS[used].fits(features(A))
    assert used in solution.decision
    assert passes(A, solution.x, b)


def test_what_looks_definite_and_is_not_is_solved_by_another_method():
    A = sparse.csr_array(laplace_3d(15) - 0.5 * sparse.eye_array(3375))
    b = np.random.default_rng(0).standard_normal(3375)
    solution = rw.factor(A, assume_a="pos").solve(b, full_output=True)
    methods = [Action.parse(attempt.action).method for attempt in solution.attempts]
    assert methods[0].startswith(("cholesky", "pardiso-cholesky", "cholmod", "amg", "multigrid"))
    assert methods[-1] not in methods[:1]
    assert passes(A, solution.x, b)


def test_pos_is_a_word_of_the_user_that_symmetry_must_confirm():
    A = convection_diffusion_2d(60, 0.1, (1.0, 3.0)).A
    b = np.ones(3600)
    solution = rw.solve(A, b, full_output=True, assume_a="pos")
    assert not solution.attempts[0].action.startswith("cholesky")
    assert passes(A, solution.x, b)


def test_cheaper_work_is_chosen():
    """Of two methods with the same counts the one with lower prices is first."""
    policy = default_policy()
    A = laplace_3d(16)
    values = features(A, PROBE_CONTEXT.features)
    seen = Profile.of(PROBE_CONTEXT.vector(values).tolist())
    expected = policy.expectations(seen)
    first = policy.rank(seen).first
    assert expected[first].seconds == min(e.seconds for e in expected.values())
    assert {e.method for e in expected.values()} >= {"cholesky/amd", "ldl/amd", "lu/amd", SAFE}


def test_shipped_prices_are_whole():
    prices = generic_prices().sparse
    assert prices.source
    for name in ("cholesky/amd", "cholesky/nd", "ldl/amd", "lu/amd", "lu/nd", "superlu/mmd", SAFE):
        for fmt in METHODS[name].formats:
            numbers = prices.factor[name][fmt.name]
            assert len(numbers) == len(AMOUNTS)
            assert min(numbers) >= 0 < max(numbers)
            assert prices.solve[name][fmt.name] > 0


# What was found to choose serves to factorize


def test_orders_are_used_again(monkeypatch):
    A = sparse.csr_array(laplace_3d(8))
    orders = Orders(A)
    order = orders.order("amd")
    monkeypatch.setitem(rw.backends.engines.orderings.ORDERINGS, "amd", None)  # cannot be called
    symbolic = rw.backends.ENGINES["cholesky"].analyse(A, "amd", orders)
    assert sorted(symbolic.columns) == sorted(order)
    factors = symbolic.factorize(A.data, rw.FP64)
    np.testing.assert_allclose(A @ factors.solve(np.ones(512)), np.ones(512), rtol=1e-10)


# No unbounded regret


def test_work_beyond_the_time_limit_is_not_started():
    A, n = arrow(3000), 3000
    assert features(A, ("factor_entries",))["factor_entries"] == 2 * n - 1
    analysis = NATIVE.analyse(A, "lu/natural")
    with pytest.raises(rw.backends.ArithmeticFailure) as failure:
        analysis.factorize(A, rw.FP64, seconds=1e-6)
    assert failure.value.status is Status.STOPPED


def test_a_factorization_that_fills_in_is_stopped_and_the_next_rung_solves():
    A, n = arrow(3000), 3000
    b = np.ones(n)
    ladder = (Action.parse(f"lu/natural:fp64-{REST}"), Action.parse(f"{SAFE}:fp64-{REST}"))

    plan = rw.solver.Plan(ladder, "to be stopped", time_limit=1e-4)
    solution = rw.Factorization(prepare(A), plan).solve(b, full_output=True)
    assert [attempt.status for attempt in solution.attempts] == [
        rw.OutcomeStatus.STOPPED,
        rw.OutcomeStatus.CONVERGED,
    ]
    assert "more time than its limit" in solution.attempts[0].reason
    assert passes(A, solution.x, b)


def test_a_stopped_method_is_left_with_all_its_formats():
    ladder = [Action.parse(f"{m}-{REST}") for m in ("lu/amd:fp32", "lu/amd:fp64", f"{SAFE}:fp64")]
    assert rw.VerifiedSolve.rung_after(ladder, 0, rw.OutcomeStatus.STOPPED) == 2
    assert rw.VerifiedSolve.rung_after(ladder, 0, rw.OutcomeStatus.OVERFLOW) == 1


def test_ldl_goes_on_with_the_order_that_cholesky_had(monkeypatch):
    """Symmetric with a positive diagonal, and indefinite: Cholesky fails, and L D L' is next."""
    ordered = []

    def noted(pattern):
        ordered.append(pattern)
        return amd(pattern)

    amd = orderings.ORDERINGS["amd"]
    monkeypatch.setitem(orderings.ORDERINGS, "amd", noted)
    A = sparse.csr_array(laplace_3d(14) - 2.9 * sparse.eye_array(14**3))
    solution = rw.factor(A).solve(A @ np.ones(14**3), full_output=True)
    methods = [attempt.action.split(":")[0] for attempt in solution.attempts]
    methods = [method for method in methods if method != "multigrid/sa"]  # it finds out sooner
    assert methods[0] == "cholesky/amd"
    assert methods[-1] == "ldl/amd"
    assert len(ordered) == 1
