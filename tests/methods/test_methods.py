"""Methods: each has a price; one that is added with a price is chosen without another edit."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from exact import passes

import roundwise as rw
from roundwise.algorithms.least_squares.augmented import OrthogonalFactors
from roundwise.backends.contract import Analysis, ArithmeticFailure, Status
from roundwise.costs import Shape, Work
from roundwise.costs.prices import generic_device_prices, generic_prices
from roundwise.costs.sparse_calibration import FEWEST, SparseTimes, scaled, timed_methods
from roundwise.methods import AMOUNTS, METHODS, SAFE, Method, Seconds, safest_last
from roundwise.methods.sparse import engine
from roundwise.methods.tall import TALL
from roundwise.policies import NeighbourPolicy, shipped_facts
from roundwise.problems import LinearSystem, poisson_2d
from roundwise.solver import default_policy
from roundwise.solver.prepare import AT_ONCE
from roundwise.tuning import PROBE_CONTEXT, DeployedPolicy

WORK = Work(1), Work(1, 1), Work(1, 1, 1)
GRID = Shape(10_000, 50_000, 1, 3e5, 2e7, 1.5e7, 2.5e5)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_is_told_completely(method):
    assert method.formats == tuple(sorted(method.formats, key=lambda fmt: fmt.p))
    assert method.formats[-1] == rw.FP64  # the last try by a method
    assert all(METHODS[name].formats[-1] == rw.FP64 for name in method.then)
    assert method.then or method.name in ("qr", SAFE)
    assert method.chosen == (method.price is not None or method.device_price is not None)
    assert method.fits(dict.fromkeys(method.needs, 1.0))
    if method.needs:
        assert not method.fits(dict.fromkeys(method.needs, 0.0))


def test_the_safe_methods_are_last():
    assert [method.name for method in safest_last()[-2:]] == ["lu", SAFE]
    assert {method.name for method in safest_last()} == set(METHODS)


def test_prices_are_seconds_that_grow_with_the_work():
    prices, device = generic_prices(), generic_device_prices()
    for method in METHODS.values():
        for rates, formula in ((prices, method.price), (device, method.device_price)):
            for fmt in method.formats if formula else ():
                if not rates.prices(method.name, fmt.name):
                    continue
                shapes = [GRID] if method.sparse else [Shape(n, n * n) for n in (500, 1000, 5000)]
                seconds = np.array(
                    [
                        [rates.seconds(shape, method.name, fmt.name, work) for work in WORK]
                        for shape in shapes
                    ]
                )
                assert (seconds > 0).all()
                assert np.isfinite(seconds).all()
                assert (np.diff(seconds, axis=0) > 0).all()
                assert (np.diff(seconds, axis=1) > 0).all()


def test_a_method_without_a_rate_has_no_price():
    prices = generic_prices()
    assert not prices.prices("qr", "fp64")
    assert not prices.prices("lu/local", "fp64")  # on a GPU it has one
    assert not prices.prices("nobody's", "fp64")
    with pytest.raises(ValueError, match="no price in fp16x2"):
        prices.seconds(Shape(10, 100), "lu", "fp16x2", Work(1))
    with pytest.raises(ValueError, match="banded has no price"):
        generic_device_prices().seconds(Shape(10, 100), "banded", "fp64", Work(1))


# A method of one's own


class Inverted(Analysis):
    """LU under another name; `fails` makes every factorization break down."""

    def __init__(self, backend, method, fails=False):
        self.backend, self.method, self.fails = backend, method, fails

    def factorize(self, A, fmt):
        if self.fails:
            raise ArithmeticFailure(Status.UNSUITED, "a toy", fmt, 0)
        return self.backend.matrix(A, fmt).lu()


def toy(sparse, fails=False, **changed):
    name, then = ("toy/own", SAFE) if sparse else ("toy", "lu")
    settings = {
        "formats": (rw.FP64,),
        "then": (then,),
        "price": lambda rates, shape, fmt: Seconds(1e-9),
        "prepare": lambda backend, A: Inverted(backend, name, fails),
    }
    return Method(name, sparse, **settings | changed)


@pytest.fixture
def added(monkeypatch):
    """Adds a method, as one line in `METHODS` would."""

    def add(method):
        monkeypatch.setitem(METHODS, method.name, method)
        return method

    return add


def dense_system():
    n = max(700, default_policy().express_below)
    rng = np.random.default_rng(0)
    return LinearSystem(rng.standard_normal((n, n)), rng.standard_normal(n))


SYSTEMS = {False: dense_system, True: lambda: poisson_2d(75)}
each_kind = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def solved(sparse):
    system = SYSTEMS[sparse]()
    solution = rw.factor(system.A).solve(system.b, full_output=True)
    assert passes(system.A, solution.x, system.b)
    return solution


@each_kind
def test_a_method_that_is_added_with_a_price_is_chosen(added, sparse):
    assert not solved(sparse).action.startswith("toy")
    method = added(toy(sparse))
    solution = solved(sparse)
    assert solution.action == f"{method.name}:fp64-fp64-fp64-fp64"
    assert method.name in solution.explain()


def test_it_competes_with_what_is_solved_at_once(added):
    n = default_policy().express_below - 8
    A = np.random.default_rng(1).standard_normal((n, n))
    assert AT_ONCE in rw.solve(A, np.ones(n), full_output=True).explain()
    added(toy(sparse=False))
    assert default_policy().express_below < n
    solution = rw.solve(A, np.ones(n), full_output=True)
    assert solution.action.startswith("toy:")
    assert passes(A, solution.x, np.ones(n))


@pytest.mark.parametrize("shape", [(40, 10), (300, 20), (20, 300)])
def test_so_does_one_of_least_squares(monkeypatch, shape):
    """It is chosen for its price, makes its own factors, and QR follows where it fails."""
    rng = np.random.default_rng(2)
    A, b = rng.standard_normal(shape), rng.standard_normal(shape[0])
    expected, made = np.linalg.lstsq(A, b)[0], []

    def prepare(stage, T):
        made.append(T.shape)
        return OrthogonalFactors(stage, *np.linalg.qr(T), rw.FP64)

    def solution():
        found = rw.lstsq(A, b, full_output=True)
        np.testing.assert_allclose(found.x, expected, atol=1e-10)
        return found

    assert not solution().action.startswith("toy")
    for name, seconds in (("dear", 1e9), ("cheap", 1e-9)):
        price = lambda *_, seconds=seconds: Seconds(seconds)  # noqa: E731
        added = Method(name, False, (rw.FP64,), ("qr",), price=price, prepare=prepare)
        monkeypatch.setitem(TALL, name, added)
        assert solution().action.startswith("cheap:") == bool(made) == (name == "cheap")
    broken = replace(added, name="broken", price=lambda *_: Seconds(0.0), prepare=refuse)
    monkeypatch.setitem(TALL, "broken", broken)
    found = solution()
    assert [one.action.partition(":")[0] for one in found.attempts] == ["broken", "qr"]


def refuse(*_):
    raise ArithmeticFailure(Status.ZERO_PIVOT, "toy", rw.FP64, 0)


@each_kind
def test_a_dear_one_and_one_without_a_price_are_not(added, sparse):
    for changed in ({"price": lambda *_: Seconds(1e9)}, {"price": None}):
        method = added(toy(sparse, **changed))
        assert not solved(sparse).action.startswith(method.name)


@each_kind
def test_one_that_does_not_fit_is_never_chosen(added, sparse):
    @dataclass(frozen=True)
    class Nowhere(Method):
        def fits(self, features):
            return False

    known = toy(sparse)
    added(Nowhere(**{name: getattr(known, name) for name in known.__dataclass_fields__}))
    assert not solved(sparse).action.startswith("toy")


@each_kind
def test_one_that_fails_is_followed_by_its_successor(added, sparse):
    method = added(toy(sparse, fails=True))
    solution = solved(sparse)
    assert solution.action == f"{method.then[0]}:fp64-fp64-fp64-fp64"
    assert [attempt.action.partition(":")[0] for attempt in solution.attempts] == [
        method.name,
        method.then[0],
    ]


@each_kind
def test_the_safe_action_stays_what_it_was(added, sparse):
    added(toy(sparse))
    space = rw.VerifiedSolve().starts([sparse])
    assert space.names[space.safe] == f"{SAFE if sparse else 'lu'}:fp64-fp64-fp64-fp64"


# Bands and triangles


def ranked(A):
    policy = NeighbourPolicy(shipped_facts(), generic_prices())
    features = len(PROBE_CONTEXT.features)
    policy.start(np.empty((0, features)), rw.VerifiedSolve().starts((False, True)))
    ranking = DeployedPolicy(policy, PROBE_CONTEXT).rank(LinearSystem(A, np.ones(len(A))))
    return policy.space[ranking.first], ranking.reason


@pytest.mark.parametrize("n", [300, 800])
def test_bands_and_triangles_are_ranked_by_their_prices(n):
    full = np.random.default_rng(1).standard_normal((n, n)) + n * np.eye(n)
    for A, name in (
        (np.diag(np.diag(full)), "banded"),
        (np.triu(np.tril(full, 2), -3), "banded"),
        (np.triu(np.tril(full, n // 40), -n // 40), "banded"),
        (np.tril(full), "triangular"),
        (np.triu(full)[::-1], "triangular"),
    ):
        action, reason = ranked(A)
        assert str(action) == f"{name}:fp64-fp64-fp64-fp64"
        assert reason.startswith(f"Chose {name} in FP64: ")
        assert re.search(r"(lu|cholesky) in FP\d\d would take .* ms", reason)
    assert ranked(full)[0].method == "lu"


def test_a_band_costs_the_more_the_wider_it_is():
    prices, n, work = generic_prices(), 2000, Work(1, 1)
    seconds = [
        prices.seconds(Shape(n, n * n, diagonals=d), "banded", "fp64", work)
        for d in (1, 3, 50, 1000, 3999)
    ]
    assert seconds == sorted(seconds)
    whole = prices.seconds(Shape(n, n * n), "lu", "fp64", work)
    assert seconds[2] < whole < seconds[-1]


# Prices that a calibration measures


def test_an_engine_without_a_generic_price_is_priced_by_its_own_times():
    """Made-up times: 2 ms and 3 ns for each flop, and 5 ns for each entry of L in a solve."""
    shapes = [
        Shape(n, 5 * n, 1, 10.0 * n, 100.0 * n**power, 0.0, 25.0 * n)
        for n, power in ((500, 1.5), (1000, 1.2), (4000, 1.0), (8000, 1.6), (900, 1.9))
    ]
    times = {
        f"system {i}": SparseTimes(
            shape,
            1e-9 * shape.entries,
            {
                SAFE: {"fp64": (1e-3, 1e-4)},
                "new/own": {"fp64": (2e-3 + 3e-9 * shape.flops, 5e-9 * shape.filled)},
                "rare/own": {"fp64": (1.0, 1.0)} if i < FEWEST - 1 else {},
            },
        )
        for i, shape in enumerate(shapes)
    }
    generic = generic_prices().sparse
    reference = {f"system {i}": {SAFE: {"fp64": [1e-3, 1e-4]}} for i in range(len(shapes))}
    found = scaled(replace(generic, reference=reference), times)
    expected = dict(zip(AMOUNTS, found.factor["new/own"]["fp64"], strict=True))
    assert expected.pop("a matrix") == pytest.approx(2e-3, rel=1e-6)
    assert expected.pop("flops") == pytest.approx(3e-9, rel=1e-6)
    for name, price in expected.items():
        assert price * {"n": 8000}.get(name, 8e5) < 1e-8
    assert found.solve["new/own"]["fp64"] == pytest.approx(5e-9)
    assert "rare/own" not in found.factor
    prices = replace(generic_prices(), sparse=found)
    assert engine("new/own", (SAFE,), low=None).price(prices, shapes[0], "fp64").factor == (
        pytest.approx(2e-3 + 3e-9 * shapes[0].flops + prices.profile.run_overhead, rel=1e-6)
    )


def test_a_method_of_ones_own_is_timed_by_calibrate(added):
    added(toy(sparse=True))
    found = timed_methods(
        poisson_2d(12).A, rw.backends.get_backend("native"), lambda call: (1.0, call())
    )
    assert found.methods["toy/own"] == {"fp64": (1.0, 1.0)}
